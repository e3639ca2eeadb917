package postgres

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// Queue collects the statements of a handler made by [Queued]. After the handler has returned nil
// they are sent with COMMIT, in their order in the queue, so the handler does not see their
// results. It is for one goroutine.
type Queue struct {
	statements []claimtx.Request
}

// Exec queues a statement. Rows that it returns are not read.
func (q *Queue) Exec(sql string, args ...any) {
	q.statements = append(q.statements, claimtx.Request{SQL: sql, Args: args, Rows: -1})
}

// ExecRows queues an INSERT, UPDATE, DELETE, SELECT or VALUES, without a WITH that changes rows. It
// must change or return exactly that many rows. Otherwise nothing is committed, and the attempt
// fails with a [*RowsError].
func (q *Queue) ExecRows(rows int64, sql string, args ...any) {
	q.statements = append(q.statements, claimtx.Request{SQL: sql, Args: args, Rows: max(rows, 0)})
}

// StatementError is the error of a queued statement.
type StatementError struct {
	Number int    // position in the queue, from 1
	SQL    string // as it was queued
	Err    error
}

// Error implements error. It names the statement by its number and first words.
func (e *StatementError) Error() string {
	const shown = 60
	return fmt.Sprintf("postgres: queued statement %d (%.*s): %s", e.Number, shown, e.SQL, e.Err)
}

// Unwrap returns the error without the statement.
func (e *StatementError) Unwrap() error { return e.Err }

// RowsError says that a statement of [Queue.ExecRows] changed or returned another number of rows.
// It does not make the failure permanent; RetryPolicy.Classify can.
type RowsError struct{ Want, Got int64 }

// Error implements error.
func (e *RowsError) Error() string {
	return fmt.Sprintf("it had to change or return %d rows, and the number was %d", e.Want, e.Got)
}

// Queued adapts a function that queues its statements to a handler for Router.AddConsumerHandler. A
// single message takes two round trips: one for BEGIN and the claim, one for the statements and
// COMMIT. The function can read with TxFromContext, in separate round trips.
//
// The statements may take InboxConfig.CommitTimeout. A statement that would end the transaction is
// refused with stores.ErrTxManaged. Otherwise errors are those of [Handler].
func Queued(f func(ctx context.Context, q *Queue, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		q := &Queue{}
		if err := f(ctx, q, msg); err != nil || len(q.statements) == 0 {
			return err
		}
		return q.hand(ctx, tx)
	})
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

func (q *Queue) hand(ctx context.Context, tx pgx.Tx) error {
	// Handler gives this type.
	managed, _ := tx.(*managedTx)
	shared, inBatch := tx.(*memberTx)
	for i := range q.statements {
		s := &q.statements[i]
		queued := s.SQL
		var err error
		if inBatch {
			s.SQL, s.Args, err = shared.admit(ctx, s.SQL, s.Args)
		} else {
			s.SQL, s.Args, err = rewrite(ctx, managed.tx.Conn(), s.SQL, s.Args)
		}
		if err != nil {
			return &StatementError{Number: i + 1, SQL: queued, Err: err}
		}
	}
	handed := &claimtx.Handed{Statements: q.statements, Failed: q.failed}
	if inBatch {
		return shared.member.Hand(ctx, handed)
	}
	return managed.attempt.Hand(ctx, handed)
}

func (q *Queue) failed(at int, rows int64, err error) error {
	if err == nil {
		err = &RowsError{Want: q.statements[at].Rows, Got: rows}
	}
	return &StatementError{Number: at + 1, SQL: q.statements[at].SQL, Err: err}
}
