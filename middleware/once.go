package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/leased"
	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrStepMisused: a step's name is empty, too long or already used in this attempt; a step or
	// OnComplete runs inside a step; an attempt has too many steps; or a step begins after the
	// handler has returned. The step did not run.
	ErrStepMisused = execute.ErrStepMisused
	// ErrStepResult: the result of a step cannot be encoded as JSON, or exceeds
	// stores.MaxStepResultBytes. The step has run and is not on record, so the message fails as
	// unconfirmed.
	ErrStepResult = errors.New("middleware: the result of a step")
	// ErrJournal: before the handler's context ended, the recorded steps could not be read, or a
	// step that has run could not be recorded. The next attempt runs the step again.
	ErrJournal = execute.ErrJournal
)

// Once runs step and records its result as JSON. If an earlier attempt of this message has
// recorded a step of that name, Once returns the recorded result without running step. So a
// handler under a lease that charges, ships and mails resumes where it stopped.
//
// Inside step, with its ctx, IdempotencyKey returns a key of the step's own, the same on every
// attempt. A step whose process dies before the record is committed runs again with it.
//
// A step is recorded in a commit of its own, and only while the handler holds the lease. If step
// returns an error or panics, nothing is recorded. A name stands for one step in an attempt,
// whatever its outcome: retry inside of it. Steps may run side by side. A step must not publish
// or call OnComplete, because the next attempt may not run it: do that beside the step, with its
// result.
//
// The error wraps stores.ErrNoLease without a lease, ErrLeaseLost if the lease was lost before
// the record, ErrStepMisused, ErrStepResult or ErrJournal.
func Once[T any](ctx context.Context, name string, step func(ctx context.Context) (T, error)) (T, error) {
	var result, none T
	run, ok := leased.Of(ctx)
	if !ok {
		return none, fmt.Errorf("middleware: %w", stores.ErrNoLease)
	}
	fresh := false
	recorded, err := run.Once(name, func() ([]byte, error) {
		fresh = true
		value, err := step(&stepContext{ctx, &stepRun{name}})
		if err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(encoded, &result) // this attempt gets the same value as later ones
		}
		if err == nil && len(encoded) > stores.MaxStepResultBytes {
			err = fmt.Errorf("it has %d bytes as JSON, and %d are kept: return less, such as an id", len(encoded), stores.MaxStepResultBytes)
		}
		if err != nil {
			return nil, Unconfirmed(fmt.Errorf("%w %q cannot be kept, and it has run: %w", ErrStepResult, name, err))
		}
		return encoded, nil
	})
	if err != nil {
		return none, err //nolint:wrapcheck // it is ours, or the step's
	}
	if !fresh {
		if err := json.Unmarshal(recorded, &result); err != nil {
			return none, fmt.Errorf("%w %q that is on record is of another type: %w", ErrStepResult, name, err)
		}
	}
	return result, nil
}

// stepContext is the context of a step.
type stepContext struct {
	context.Context //nolint:containedctx // it is one

	run *stepRun
}

// Value implements context.Context. It hides the handler's publisher: outputs of a step would be
// lost on an attempt that does not run it.
func (c *stepContext) Value(key any) any {
	switch key {
	case leased.Key{}:
		return c.run
	case capture.Key{}:
		return nil
	}
	return c.Context.Value(key)
}

// stepRun is the run that code inside a step finds in its context.
type stepRun struct{ name string }

var _ leased.Run = (*stepRun)(nil)

// OnComplete implements leased.Run.
func (s *stepRun) OnComplete(func(context.Context) error) error {
	return fmt.Errorf("%w: OnComplete inside %q, which the next attempt may not run: call it beside the step", ErrStepMisused, s.name)
}

// Once implements leased.Run.
func (s *stepRun) Once(name string, _ func() ([]byte, error)) ([]byte, error) {
	return nil, fmt.Errorf("%w: %q inside %q", ErrStepMisused, name, s.name)
}
