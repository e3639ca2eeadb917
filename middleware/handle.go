package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/stores"
)

// Run implements delivery.Handler: it calls the handler with the attempt's context, and
// puts the message back as it arrived.
func (v *visit) Run(ctx context.Context, x execute.Execution) (outputs []stores.Output, err error) {
	mark := &running{Context: ctx, inbox: v.in, msg: v.msg, key: v.arrival.Claim.Key, ranAs: v.facts.RanAs, number: v.machine.Attempt(), outer: v.outer}
	if v.in.config.Outputs != nil {
		mark.said = capture.New(ctx, v.output)
	}
	came := v.msg.Context()
	v.msg.SetContext(x.Context(mark))
	var begun time.Time
	if len(v.in.hooks.handlerEnd) > 0 {
		begun = time.Now()
	}
	defer func() {
		mark.over.Store(true)
		mark.said.Close()
		v.was.restore(v.msg)
		v.msg.SetContext(came)
	}()
	defer innerPanic()
	returned, err := v.next(v.msg)
	if tx := mark.foreignTx(); tx != nil {
		err = errors.Join(tx, err)
	}
	v.in.hooks.handlerEnds(ctx, begun, err)
	switch {
	case errors.Is(err, stores.ErrNoTx):
		return nil, fmt.Errorf("%w (the inbox is on a %T)", err, v.in.store)
	case err == nil && len(returned) > 0 && ctx.Err() == nil:
		err = v.capture(mark.said, returned)
	}
	outputs = mark.said.Close()
	v.diary.said = len(outputs) > 0
	return outputs, err
}

// Changed implements delivery.Handler. Without fingerprints a change cannot be noticed. The
// fingerprint in a parked message's row does not help: it may be of an earlier key or of earlier
// headers.
func (v *visit) Changed() bool {
	if v.in.config.Fingerprint.Off {
		return false
	}
	came := v.arrival.Claim.Fingerprint
	if v.retry != nil {
		came = v.retry.arrived
	}
	return v.fingerprint() != came
}

// Acked implements delivery.Handler.
func (v *visit) Acked() bool {
	select {
	case <-v.msg.Acked():
		return true
	default:
		return false
	}
}

// Classify implements delivery.Handler.
func (v *visit) Classify(cause error) (class stores.Class) {
	ask := v.in.handlers.policy(v.handler).Classify
	if ask == nil {
		return ""
	}
	v.in.panics.note("RetryPolicy.Classify", v.arrival.Claim.Key, callback.Call("it", func() error {
		class = ask(cause)
		return nil
	}))
	return class
}
