package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
)

// looseAttempt is a transaction of database/sql that holds no claim. Variants use it
// in place of the store's.
type looseAttempt struct {
	tx     sqlTx
	byText bool // COMMIT is sent as a statement, as hand-made code does
}

// variantTxKey finds the transaction of a variant in a context.
type variantTxKey struct{}

// beginWithoutClaim begins a transaction and claims nothing.
func beginWithoutClaim(b *backend) (*looseAttempt, error) {
	tx, err := b.db.BeginTx(context.Background(), nil) // it outlives the context of Begin
	if err != nil {
		return nil, fmt.Errorf("%w: %w", stores.ErrUnavailable, err)
	}
	return &looseAttempt{tx: sqlTx{tx, b.dialect}}, nil
}

// attemptOf is an answer of stores.Inbox.
func attemptOf(a *looseAttempt, err error) (stores.Attempt, stores.Verdict, error) {
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	return a, stores.Verdict{Outcome: stores.Claimed}, nil
}

// consumerID finds the consumer whose handler is $2.
const consumerID = "(SELECT id FROM millpond_consumer WHERE handler = $2)"

// plainly is for claim.
func plainly(insert string) string { return insert }

// claim inserts the row of a claim, in the way of insert.
func (a *looseAttempt) claim(ctx context.Context, c stores.Claim, insert func(string) string) error {
	return a.tx.exec(ctx, insert("INSERT INTO millpond_inbox (message_id, consumer, status, fingerprint) VALUES ($1, "+consumerID+", 2, $3)"),
		c.Key.ID, c.Key.Consumer.Handler, c.Fingerprint.Bytes())
}

func (a *looseAttempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, variantTxKey{}, transaction(a.tx))
}

func (a *looseAttempt) Commit(ctx context.Context) error {
	var err error
	if a.byText {
		err = a.tx.exec(ctx, "COMMIT")
		_ = a.tx.Rollback()
	} else {
		err = a.tx.Commit()
	}
	_, postgres := errors.AsType[*pgconn.PgError](err)
	_, mysql := errors.AsType[*mysql.MySQLError](err)
	if postgres || mysql || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", stores.ErrNotCommitted, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", stores.ErrCommitUnknown, err)
	}
	return nil
}

func (a *looseAttempt) Rollback(context.Context) error {
	if err := a.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}
