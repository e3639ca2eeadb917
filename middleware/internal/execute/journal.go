package execute

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Package middleware documents these errors.
var (
	ErrStepMisused = errors.New("middleware: a step is used wrongly")
	ErrJournal     = errors.New("middleware: the results of steps could not be read or recorded")
)

// maxSteps bounds the steps of a run, because all recorded ones are read at once.
const maxSteps = 1000

// journal records the steps of one run.
type journal struct {
	store  stores.LeaseInbox
	lease  stores.HeldLease
	parent context.Context //nolint:containedctx // for the calls
	bound  time.Duration   // the timeout of each call

	mu       sync.Mutex
	closed   bool
	begun    map[string]bool
	recorded map[string][]byte // by earlier attempts; nil: not read yet
	writing  sync.WaitGroup
}

// begin reserves a name, and returns the recorded result if there is one.
func (j *journal) begin(ctx context.Context, name string) (result []byte, found bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return nil, false, fmt.Errorf("%w: %q begins after the handler has returned", ErrStepMisused, name)
	case name == "" || len(name) > stores.MaxStepNameBytes || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return nil, false, fmt.Errorf("%w: the name %.250q is not 1 to %d bytes of UTF-8 without NUL", ErrStepMisused, name, stores.MaxStepNameBytes)
	case j.begun[name]:
		return nil, false, fmt.Errorf("%w: two of one attempt have the name %q", ErrStepMisused, name)
	case len(j.begun) >= maxSteps:
		return nil, false, fmt.Errorf("%w: %q is one more than the %d that an attempt may have", ErrStepMisused, name, maxSteps)
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	}
	if j.recorded == nil {
		if err := j.read(ctx); err != nil {
			return nil, false, err
		}
	}
	if j.begun == nil {
		j.begun = make(map[string]bool)
	}
	j.begun[name] = true
	result, found = j.recorded[name]
	return result, found, nil
}

func (j *journal) read(ctx context.Context) error {
	var steps []stores.Step
	err := j.insist(ctx, func(ctx context.Context) (err error) {
		steps, err = j.store.Steps(ctx, j.lease)
		return err //nolint:wrapcheck // wrapped below
	})
	if errors.Is(err, stores.ErrChanged) {
		return fmt.Errorf("%w: another holder has begun since", ErrLeaseLost)
	}
	if err != nil {
		return fmt.Errorf("%w: the recorded results cannot be read: %w", ErrJournal, err)
	}
	j.recorded = make(map[string][]byte, len(steps))
	for _, s := range steps {
		j.recorded[s.Name] = s.Result
	}
	return nil
}

// record records a finished step. It tries until the handler's ctx ends, and at least once.
func (j *journal) record(ctx context.Context, s stores.Step) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return fmt.Errorf("%w: %q has ended after the handler has returned", ErrJournal, s.Name)
	}
	j.writing.Add(1)
	j.mu.Unlock()
	defer j.writing.Done()
	err := j.insist(ctx, func(ctx context.Context) error { return j.store.RecordStep(ctx, j.lease, s) })
	switch {
	case errors.Is(err, stores.ErrChanged):
		return fmt.Errorf("%w: the step %q is not on record", ErrLeaseLost, s.Name)
	case err != nil:
		return fmt.Errorf("%w: %q is done, and not on record: %w", ErrJournal, s.Name, err)
	}
	return nil
}

// insist calls ask until the store answers or ctx ends.
func (j *journal) insist(ctx context.Context, ask func(context.Context) error) error {
	const least, most = 20 * time.Millisecond, time.Second
	for wait := least; ; wait = min(2*wait, most) {
		question, done := context.WithTimeout(j.parent, j.bound)
		err := ask(question)
		done()
		if !errors.Is(err, stores.ErrUnavailable) || !pause.Sleep(ctx, pause.Jitter(wait)) {
			return err
		}
	}
}

// close refuses further steps, and waits for a record that is being written.
func (j *journal) close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.writing.Wait()
}
