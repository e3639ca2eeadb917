package postgres

import (
	"cmp"
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

// Begin implements stores.Inbox. Trips: one if the claim is won, one more to see
// why not; with Claim.Look one for a duplicate, one more than usual otherwise.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, verdict, err := s.begin(ctx, &c)
	if a == nil { // not a non-nil interface around a nil pointer
		return nil, verdict, err
	}
	return a, verdict, err
}

func (s *Store) begin(ctx context.Context, c *stores.Claim) (_ *attempt, _ stores.Verdict, err error) {
	defer func() {
		if errors.Is(err, stores.ErrNotMigrated) {
			s.forgetConsumers() // new tables would give their ids to others
		}
	}()
	if s.closed.Load() {
		return nil, stores.Verdict{}, stores.ErrClosed
	}
	// A registered consumer is a valid one, so that only the id is left to look at.
	consumer, err := s.consumerID(c.Key.Consumer)
	if n := len(c.Key.ID); err != nil || n == 0 || n > stores.MaxIDBytes {
		return nil, stores.Verdict{}, cmp.Or(c.Key.Validate(), err)
	}
	if c.Look {
		row, err := scanRow(s.pool.QueryRow(ctx, s.sql.look, consumer, c.Key.ID))
		if err != nil {
			return nil, stores.Verdict{}, unavailable(err)
		}
		if row.found {
			verdict, err := row.verdict(c.Fingerprint)
			return nil, verdict, err
		}
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	tx, at, err := s.claim(ctx, conn, consumer, c)
	if err != nil {
		s.abandon(ctx, conn)
		return nil, stores.Verdict{}, unavailable(err)
	}
	if tx != nil {
		return newAttempt(s, conn, tx, consumer, c.Key.ID, at), stores.Verdict{Outcome: stores.Claimed}, nil
	}
	defer conn.Release()
	row, err := s.lookAndRollback(ctx, conn, consumer, c.Key.ID)
	if err != nil {
		return nil, stores.Verdict{}, unavailable(err)
	}
	verdict, err := row.verdict(c.Fingerprint)
	return nil, verdict, err
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
func (s *Store) claim(ctx context.Context, conn *pgxpool.Conn, consumer int32, c *stores.Claim) (tx pgx.Tx, at time.Time, err error) {
	var batch pgx.Batch
	batch.BeginTx(s.txOptions)
	var trace []byte
	if !c.TraceParent.IsZero() {
		trace = c.TraceParent[:]
	}
	lock := s.lockKey(consumer, c.Key.ID)
	if s.limits.keep(c.Bound) {
		batch.Queue(s.sql.claim, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock)
	} else {
		idle, statement := s.limits.within(c.Bound)
		batch.Queue(s.sql.claimBounded, consumer, c.Key.ID, c.Fingerprint.Bytes(), trace, lock, idle, statement)
	}
	results := conn.SendBatch(ctx, &batch)
	if _, err = results.Exec(); err != nil {
		return nil, at, errors.Join(err, results.Close())
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

// lookAndRollback reads the row that stood in the way and ends the transaction, in
// one trip. Its snapshot is newer than the row the insert met, so a row that made
// the insert fail is seen.
func (s *Store) lookAndRollback(ctx context.Context, conn *pgxpool.Conn, consumer int32, id []byte) (inboxRow, error) {
	var batch pgx.Batch
	batch.Queue(s.sql.look, consumer, id)
	batch.Queue("rollback")
	results := conn.SendBatch(ctx, &batch)
	row, err := scanRow(results.QueryRow())
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return row, err
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
// id. Two keys that collide only wait for each other.
func (s *Store) lockKey(consumer int32, id []byte) int64 {
	buf := make([]byte, 0, 128)
	buf = append(buf, s.lockSalt...)
	buf = append(buf, 0)
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
	var row inboxRow
	err := r.Scan(&row.Status, &row.Fingerprint, &row.Trace, &row.CompletedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, nil
	}
	row.found = err == nil
	return row, err
}

func (r inboxRow) verdict(claimed stores.Fingerprint) (stores.Verdict, error) {
	if !r.found {
		// The lock is taken, or its holder has rolled back meanwhile.
		return stores.Verdict{Outcome: stores.InFlight}, nil
	}
	v, err := r.Verdict(claimed)
	if err != nil {
		err = fmt.Errorf("postgres: %w", err)
	}
	return v, err
}

// Resolve implements stores.Resolver.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if s.closed.Load() {
		return false, stores.ErrClosed
	}
	consumer, err := s.consumerID(k.Consumer)
	if err != nil {
		return false, err
	}
	row, err := s.settledRow(ctx, consumer, k.ID)
	return row.found && row.Status == sqlstore.StatusCompleted, err
}

// settledRow waits for the key's lock, which a transaction that claims the key holds
// until its outcome is visible, and reads the row.
func (s *Store) settledRow(ctx context.Context, consumer int32, id []byte) (inboxRow, error) {
	// The server must give up before we do, or it would go on waiting unwatched.
	wait := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(time.Until(deadline)*9/10, time.Millisecond)
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return inboxRow{}, err
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue("SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", wait.Milliseconds()))
	batch.Queue("SELECT pg_advisory_xact_lock($1)", s.lockKey(consumer, id))
	batch.Queue(s.sql.look, consumer, id)
	batch.Queue("rollback")
	results := conn.SendBatch(ctx, &batch)
	for range 3 {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	var row inboxRow
	if err == nil {
		row, err = scanRow(results.QueryRow())
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return inboxRow{}, unavailable(err)
	}
	return row, nil
}
