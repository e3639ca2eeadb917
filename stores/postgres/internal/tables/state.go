package tables

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// stateScan takes stateColumns, which are null where there is no failure.
type stateScan struct {
	number, revision, placement, content, attempts, uncounted pgtype.Int8

	class    pgtype.Text
	presumed pgtype.Bool

	age, dueIn pgtype.Int8 // in microseconds
}

// with returns the destinations of a row that ends with stateColumns.
func (s *stateScan) with(before ...any) []any {
	return append(before, &s.number, &s.revision, &s.placement, &s.content, &s.class, &s.attempts, &s.uncounted, &s.presumed, &s.age, &s.dueIn)
}

func (s *stateScan) state(status stores.Status) stores.FailureState {
	if !s.number.Valid {
		return stores.FailureState{}
	}
	return stores.FailureState{
		Version:   sqlstore.Version(s.number.Int64, s.revision.Int64),
		Status:    status,
		Placement: stores.Placement(s.placement.Int64),  //nolint:gosec // a small number of ours
		Content:   stores.ContentState(s.content.Int64), //nolint:gosec // a small number of ours
		Class:     stores.Class(s.class.String),
		Attempts:  int(s.attempts.Int64),
		Uncounted: int(s.uncounted.Int64),
		Presumed:  s.presumed.Bool,
		Age:       time.Duration(s.age.Int64) * time.Microsecond,
		DueIn:     time.Duration(s.dueIn.Int64) * time.Microsecond,
	}
}
