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
	// ErrStepMisused: a name that is empty, too long or taken in this attempt, a step or
	// OnComplete inside a step, more steps than an attempt may have, or a step that begins after the
	// handler has returned. The step did not run.
	ErrStepMisused = execute.ErrStepMisused
	// ErrStepResult: the result of a step is no JSON, or has more than
	// stores.MaxStepResultBytes. The step has run, and is not on record; an error about a fresh
	// result makes the message fail as unconfirmed.
	ErrStepResult = errors.New("middleware: the result of a step")
	// ErrJournal: the store could not be asked for the steps on record, or a step is done and
	// could not be recorded, before the handler's context ended. The next attempt runs it again.
	ErrJournal = execute.ErrJournal
)

// Once runs step and records its result, as JSON, unless an earlier attempt of this message
// has recorded a step of that name: then it returns what is on record, without running it.
// So a handler under a lease that charges, ships and mails resumes where it stopped.
//
// Inside step, with its ctx, IdempotencyKey has a key of the step's own, the same on every
// attempt. A step whose process dies before the record is committed runs again with it.
//
// A step is recorded in a commit of its own, and only while the lease is the handler's. If
// step returns an error or panics nothing is recorded. A name stands for one step in an
// attempt, whatever became of it: repeat what fails inside of it. Steps may run side by side.
// A step must not publish or call OnComplete, since it may not run on the next attempt:
// do that beside it, with what it returns.
//
// The error wraps stores.ErrNoLease without a lease, ErrLeaseLost if the lease is another's by
// the time of the record, ErrStepMisused, ErrStepResult or ErrJournal.
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
			err = json.Unmarshal(encoded, &result) // what later attempts get is what this one gets
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

// Value implements context.Context. What a step says would be lost when it is not run again.
func (c *stepContext) Value(key any) any {
	switch key {
	case leased.Key{}:
		return c.run
	case capture.Key{}:
		return nil
	}
	return c.Context.Value(key)
}

// stepRun is the run as a step sees it.
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
