package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Begin implements stores.Inbox. Trips: one if the claim is won, one more to see why
// not, and one more where that shows that it can be.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, verdict, err := s.begin(ctx, &c)
	if a == nil { // not a non-nil interface around a nil pointer
		return nil, verdict, err
	}
	return a, verdict, err
}

func (s *Store) begin(ctx context.Context, c *stores.Claim) (*attempt, stores.Verdict, error) {
	consumer, err := s.known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	a, verdict, err := s.claimOn(ctx, conn, consumer, c)
	switch {
	case err != nil:
		s.abandon(ctx, conn)
		return nil, stores.Verdict{}, s.unavailable(err)
	case a == nil:
		conn.Release()
	}
	return a, verdict, nil
}

// claimOn decides the claim. Without an attempt or an error the transaction is over.
func (s *Store) claimOn(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim) (*attempt, stores.Verdict, error) {
	try := s.claim
	if c.Take != 0 {
		try = s.takeOver
	}
	tx, at, err := try(ctx, conn, consumer, c)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	if tx != nil {
		return newAttempt(s, conn, tx, consumer, c.Key.ID, at), stores.Verdict{Outcome: stores.Claimed}, nil
	}
	verdict, err := s.judgeAndRollback(ctx, conn, consumer, c)
	if err != nil || verdict.Outcome != stores.Claimable {
		return nil, verdict, err
	}
	if c.Take != 0 {
		verdict.Outcome = stores.InFlight
		return nil, verdict, nil
	}
	return s.claimAgain(ctx, conn, consumer, c, verdict)
}

// claimAgain is the second try, for what can be claimed after all: a failed message
// whose redelivery runs it, or one before which the last of its order key has ended
// just now.
func (s *Store) claimAgain(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim, verdict stores.Verdict) (*attempt, stores.Verdict, error) {
	try, seen := s.claim, *c
	if seen.Take = verdict.Failure.Version; seen.Take != 0 {
		try = s.takeOver
	}
	tx, at, err := try(ctx, conn, consumer, &seen)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	if tx == nil {
		verdict.Outcome = stores.InFlight
		_, err = conn.Exec(ctx, "rollback")
		return nil, verdict, err
	}
	verdict.Outcome = stores.Claimed
	return newAttempt(s, conn, tx, consumer, c.Key.ID, at), verdict, nil
}

// acquire takes a connection from the pool, and says so when it has none left.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	if pool := s.pool.Stat(); ctx.Err() != nil && pool.AcquiredConns() == pool.MaxConns() {
		err = fmt.Errorf("no connection of the pool became free in time, all %d are in use: %w", pool.MaxConns(), err)
	}
	return nil, unavailable(err)
}

// claim sends BEGIN and the insert in one trip and returns the transaction and the time
// in its row, if the row is ours.
func (s *Store) claim(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim) (pgx.Tx, time.Time, error) {
	var batch pgx.Batch
	batch.BeginTx(s.txOptions)
	trace, lock := traceBytes(&c.TraceParent), s.lockKey(consumer, c.Key.ID)
	keep := s.limits.keep(c.Bound)
	idle, statement := "", ""
	if !keep {
		idle, statement = s.limits.within(c.Bound)
	}
	switch {
	case c.OrderKey == nil && keep:
		batch.Queue(s.sql.claim, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock)
	case c.OrderKey == nil:
		batch.Queue(s.sql.claimBounded, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock, idle, statement)
	case keep:
		batch.Queue(s.sql.claimOrdered, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock, c.OrderKey)
	default:
		batch.Queue(s.sql.claimOrderedBounded, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock, c.OrderKey, idle, statement)
	}
	return sendClaim(ctx, conn, &batch, 1)
}

// takeOver is claim for the failed row that has the version c.Take.
func (s *Store) takeOver(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim) (pgx.Tx, time.Time, error) {
	var batch pgx.Batch
	batch.BeginTx(s.txOptions)
	if !s.limits.keep(c.Bound) {
		idle, statement := s.limits.within(c.Bound)
		batch.Queue(setBound, idle, statement)
	}
	number, revision := sqlstore.ParseVersion(c.Take)
	lock, trace := s.lockKey(consumer, c.Key.ID), traceBytes(&c.TraceParent)
	if c.OrderKey == nil {
		batch.Queue(s.sql.takeOver, consumer, c.Key.ID, number, revision, lock, trace)
	} else {
		batch.Queue(s.sql.takeOverOrdered, consumer, c.Key.ID, number, revision, lock, trace, c.OrderKey)
	}
	return sendClaim(ctx, conn, &batch, batch.Len()-1)
}

const setBound = "SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('statement_timeout', $2, true)"

// sendClaim sends a batch whose last query returns the time in the row that holds the
// claim, if it is won.
func sendClaim(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, before int) (_ pgx.Tx, at time.Time, err error) {
	results := conn.SendBatch(ctx, batch)
	for range before {
		if _, err = results.Exec(); err != nil {
			return nil, at, errors.Join(err, results.Close())
		}
	}
	err = results.QueryRow().Scan(&at)
	taken := errors.Is(err, pgx.ErrNoRows)
	if closeErr := results.Close(); err == nil || taken {
		err = closeErr
	}
	if err != nil || taken {
		return nil, at, err
	}
	return results.Tx(), at, nil
}

func traceBytes(t *stores.TraceParent) []byte {
	if t.IsZero() {
		return nil
	}
	return t[:]
}

// judgeAndRollback reads the row that stood in the way and ends the transaction, in
// one trip. Its snapshot is newer than the row the insert met, so a row that made
// the insert fail is seen.
func (s *Store) judgeAndRollback(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim) (stores.Verdict, error) {
	var (
		batch        pgx.Batch
		row          inboxRow
		free, behind bool
	)
	isBehind := func(r pgx.Row) error { return r.Scan(&free, &behind) }
	switch {
	case c.OrderKey != nil && c.Take == 0:
		batch.Queue(s.sql.behind, consumer, s.lockKey(consumer, c.Key.ID), c.OrderKey).QueryRow(isBehind)
	case c.OrderKey != nil:
		number, _ := sqlstore.ParseVersion(c.Take)
		batch.Queue(s.sql.behindEarlier, consumer, c.OrderKey, number).QueryRow(isBehind)
	}
	batch.Queue(s.sql.look, consumer, c.Key.ID).QueryRow(func(r pgx.Row) (err error) {
		row, err = scanRow(r)
		return err
	})
	batch.Queue("rollback")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return stores.Verdict{}, err
	}
	if !row.found {
		switch {
		case free && behind:
			return stores.Verdict{Outcome: stores.Behind}, nil
		case free:
			return stores.Verdict{Outcome: stores.Claimable}, nil
		}
		// The lock is taken, or its holder has rolled back meanwhile.
		return stores.Verdict{Outcome: stores.InFlight}, nil
	}
	verdict, err := row.Verdict(c.Fingerprint)
	if err == nil && c.Take != 0 && row.Status == stores.StatusPending && row.Failure.Version == c.Take {
		// It is as it was, so it is somebody's lock that was in the way, or the order.
		verdict.Outcome = stores.InFlight
		if behind {
			verdict.Outcome = stores.Behind
		}
	}
	return verdict, err
}

// abandon gives a connection back after a failed claim. Where the transaction can
// be rolled back the connection is kept.
func (s *Store) abandon(ctx context.Context, conn *pgxpool.Conn) {
	pg := conn.Conn().PgConn()
	if !pg.IsClosed() && pg.TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback") // Release closes a connection for which this failed
	}
	conn.Release()
}

// lockKey is the advisory lock of a key: 64 bits of a hash over table, consumer and
// id, as lockKeyText has it in SQL. Two keys that collide only wait for each other.
func (s *Store) lockKey(consumer int32, id []byte) int64 {
	buf := make([]byte, 0, 128)
	buf = append(buf, s.lockPrefix...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(consumer)) //nolint:gosec // the bits are what matters
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the bits are what matters
}

// inboxRow is the row of a key, if there is one.
type inboxRow struct {
	sqlstore.Row

	found bool
}

func scanRow(r pgx.Row) (inboxRow, error) {
	var (
		row   inboxRow
		state stateScan
	)
	err := r.Scan(state.with(&row.Status, &row.Fingerprint, &row.Trace, &row.CompletedAt)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, nil
	}
	row.found, row.Failure = err == nil, state.state(row.Status)
	return row, err
}

// Look implements stores.Failures.
func (s *Store) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	consumer, err := s.known(k)
	if err != nil {
		return stores.Verdict{}, err
	}
	row, err := scanRow(s.pool.QueryRow(ctx, s.sql.look, consumer, k.ID))
	if err != nil {
		return stores.Verdict{}, s.unavailable(err)
	}
	if !row.found {
		return stores.Verdict{Outcome: stores.Claimable}, nil
	}
	v, err := row.Verdict(f)
	if err != nil {
		return stores.Verdict{}, fmt.Errorf("postgres: %w", err)
	}
	return v, nil
}
