package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// State scans the columns of a failure's state: number, revision, status, placement, content,
// class, attempts, uncounted, presumed, its age, and when it is due, in microseconds. They are null
// without a failure.
type State struct {
	number, revision, status, placement, content, attempts, uncounted, age, dueIn *int64

	class    *string
	presumed *bool
}

// Into returns the destinations of the columns.
func (s *State) Into() []any {
	return []any{&s.number, &s.revision, &s.status, &s.placement, &s.content, &s.class, &s.attempts, &s.uncounted, &s.presumed, &s.age, &s.dueIn}
}

// Read returns the scanned state.
func (s *State) Read() stores.FailureState {
	if s.number == nil {
		return stores.FailureState{}
	}
	//nolint:gosec // only millpond writes them
	return stores.FailureState{
		Version:   Version(*s.number, value(s.revision)),
		Status:    stores.Status(value(s.status)),
		Placement: stores.Placement(value(s.placement)),
		Content:   stores.ContentState(value(s.content)),
		Class:     stores.Class(value(s.class)),
		Attempts:  int(value(s.attempts)),
		Uncounted: int(value(s.uncounted)),
		Presumed:  value(s.presumed),
		Age:       time.Duration(value(s.age)) * time.Microsecond,
		DueIn:     time.Duration(value(s.dueIn)) * time.Microsecond,
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Look implements stores.Failures.
func (s Store) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	consumer, err := s.t.Known(k)
	if err != nil {
		return stores.Verdict{}, err
	}
	row, err := s.t.db.LookUp(ctx, consumer, k.ID)
	if err != nil {
		return stores.Verdict{}, s.t.Explain(ctx, err)
	}
	if !row.Found { // a claim decides
		return stores.Verdict{Outcome: stores.Claimable}, nil
	}
	v, err := row.Verdict(f)
	if err != nil {
		return stores.Verdict{}, fmt.Errorf("%s: %w", s.t.name, err)
	}
	return v, nil
}
