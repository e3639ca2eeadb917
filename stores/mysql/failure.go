package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Look implements stores.Failures, in one trip.
func (s *Store) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	consumer, err := s.known(k)
	if err != nil {
		return stores.Verdict{}, err
	}
	row, err := s.lookUp(ctx, consumer, k.ID)
	if err != nil {
		return stores.Verdict{}, s.unavailable(err)
	}
	if !row.found || row.Status == stores.StatusProcessing { // a claim will tell
		return stores.Verdict{Outcome: stores.Claimable}, nil
	}
	verdict, err := row.Verdict(f)
	if err != nil {
		return stores.Verdict{}, fmt.Errorf("mysql: %w", err)
	}
	return verdict, nil
}

// lookUp reads the row of a key as it is committed.
func (s *Store) lookUp(ctx context.Context, consumer int64, id []byte) (inboxRow, error) {
	var row inboxRow
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return row, err
	}
	defer func() { _ = conn.Close() }()
	err = conn.QueryRowContext(ctx, s.sql.look, consumer, id).Scan(row.into()...)
	if errors.Is(err, sql.ErrNoRows) {
		return row, nil
	}
	if err == nil {
		err = row.read(true)
	}
	return row, err
}

// Record implements stores.Failures, in one short transaction that takes no lock that it
// cannot have at once.
func (s *Store) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	consumer, err := s.known(f.Key)
	if err != nil {
		return 0, err
	}
	r, err := s.newRecord(consumer, f)
	if err != nil {
		return 0, err
	}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		version, err = r.write(ctx, tx)
		return err
	})
	if err != nil {
		return 0, s.unavailable(err)
	}
	return version, nil
}

// record is a failure as it is written.
type record struct {
	stores.Failure
	store    *Store
	consumer int64
	metadata []byte
}

// newRecord makes f fit for the columns, or says why it cannot be written.
func (s *Store) newRecord(consumer int64, f stores.Failure) (*record, error) {
	switch {
	case f.Status != stores.StatusPending && f.Status != stores.StatusFailed:
		return nil, fmt.Errorf("mysql: record: Status is %s: use pending or failed", f.Status)
	case f.Placement != stores.PlacementParked && f.Placement != stores.PlacementRedelivered:
		return nil, fmt.Errorf("mysql: record: Placement is %s: use parked or redelivered", f.Placement)
	}
	r := &record{Failure: f, store: s, consumer: consumer}
	if c := f.Content; c != nil {
		var err error
		if r.metadata, err = s.metadata(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// metadata is that of a content which fits.
func (s *Store) metadata(c *stores.Content) ([]byte, error) {
	metadata, err := sqlstore.EncodeMetadata(c.Metadata)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return metadata, s.fits(len(c.UUID), len(c.Payload), len(metadata))
}

// KeepContent implements stores.Failures, in a short transaction.
func (s *Store) KeepContent(ctx context.Context, k stores.Key, version int64, c stores.Content) error {
	consumer, err := s.known(k)
	if err != nil {
		return err
	}
	metadata, err := s.metadata(&c)
	if err != nil {
		return err
	}
	number, revision := sqlstore.ParseVersion(version)
	err = s.transact(ctx, func(tx *sql.Tx) error {
		return one(execLarge(ctx, tx, len(c.Payload)+len(metadata), s.sql.keepContent,
			c.State, text(c.Codec, maxNameBytes), []byte(c.UUID), metadata, c.Payload, consumer, k.ID, number, revision))
	})
	if err != nil {
		return s.unavailable(err)
	}
	return nil
}

// slack is what a statement may take besides its large values.
const slack = 64 << 10

// maxKept is the largest message that is kept, whatever the server takes.
const maxKept = 256 << 20

// fits returns ErrTooLarge for what does not fit one packet of the server's.
func (s *Store) fits(sizes ...int) error {
	sum := 0
	for _, size := range sizes {
		sum += size
	}
	if limit := min(maxKept, s.server.maxPacket-slack); sum > limit {
		return fmt.Errorf("mysql: %w: %d bytes, at most %d can be kept (by max_allowed_packet)", stores.ErrTooLarge, sum, limit)
	}
	return nil
}

// Widths of columns, in bytes.
const (
	maxTextBytes = 1 << 10 // names of places, which come from outside
	maxNameBytes = 200     // codecs, classes and causes
)

// write makes the guarded change in tx. What it has read it has locked.
func (r *record) write(ctx context.Context, tx *sql.Tx) (version int64, err error) {
	texts := r.store.sql
	var now int64
	if err := tx.QueryRowContext(ctx, texts.now).Scan(&now); err != nil {
		return 0, err
	}
	number, revision := sqlstore.ParseVersion(r.Version)
	was := kept{budgetAt: now, history: []byte("[]")}
	if r.Version != 0 {
		if was, err = r.readKept(ctx, tx, number, revision); err != nil {
			return 0, err
		}
	}
	if r.Content != nil {
		was.content = r.Content.State
	}
	if r.Placement == stores.PlacementParked && was.content != stores.ContentKept {
		return 0, fmt.Errorf("a message whose content is %s cannot be parked", was.content)
	}
	values, err := r.values(now, &was)
	if err != nil {
		return 0, err
	}
	if r.Version == 0 {
		number, err = r.newRows(ctx, tx, values)
	} else {
		revision = (revision + 1) & maxRevision
		_, err = tx.ExecContext(ctx, texts.update, append(values, number)...)
	}
	if err != nil {
		return 0, err
	}
	return sqlstore.Version(number, revision), r.rest(ctx, tx, number, &was)
}

// values are those of the update, in its order; what is empty is left as it was.
func (r *record) values(now int64, was *kept) ([]any, error) {
	if r.Start && r.Class == "" { // nothing new is known of the failure
		r.Class, r.Cause, r.Error = stores.Class(was.class), string(was.cause), string(was.error)
	}
	history, err := r.history(was, now)
	if err != nil {
		return nil, err
	}
	budgetAt := was.budgetAt
	if was.attempts == 0 && was.uncounted == 0 {
		budgetAt = now
	}
	place := func(given string, was []byte) []byte {
		if given == "" && was != nil {
			return was
		}
		return text(given, maxTextBytes)
	}
	if len(r.OrderKey) > 0 {
		was.orderKey = r.OrderKey
	}
	return []any{
		r.Status, r.Placement, r.Start, r.Attempts, r.Uncounted, r.dueAt(now), r.orderUntil(now), budgetAt, now,
		text(string(r.Class), maxNameBytes), text(r.Cause, maxNameBytes), text(r.Error, stores.MaxErrorBytes),
		place(r.Topic, was.topic), place(r.Coordinates, was.coordinates), sqlstore.NonEmpty(was.orderKey), history,
	}, nil
}

// newRows inserts the rows of a message that has not failed before.
func (r *record) newRows(ctx context.Context, tx *sql.Tx, values []any) (number int64, err error) {
	if err := r.newRow(ctx, tx); err != nil {
		return 0, err
	}
	inserted, err := tx.ExecContext(ctx, r.store.sql.insert, append(values, r.consumer, r.Key.ID)...)
	if err != nil {
		return 0, err
	}
	return inserted.LastInsertId()
}

// newRow inserts the row of the inbox, unless the key has one, or somebody has it.
func (r *record) newRow(ctx context.Context, tx *sql.Tx) error {
	var status stores.Status
	err := tx.QueryRowContext(ctx, r.store.sql.lockInbox, r.consumer, r.Key.ID).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		query := r.store.sql.insertInbox
		if r.store.server.maria {
			query = withoutWaiting + query
		}
		var trace []byte
		if !r.TraceParent.IsZero() {
			trace = r.TraceParent[:]
		}
		_, err = tx.ExecContext(ctx, query, r.consumer, r.Key.ID, r.Status, r.Fingerprint.Bytes(), trace)
	} else if err == nil {
		err = stores.ErrChanged
	}
	if isDuplicate(err) || isContended(err) {
		return fmt.Errorf("%w: %s", stores.ErrChanged, r.Key)
	}
	return err
}

// rest changes what not every record changes.
func (r *record) rest(ctx context.Context, tx *sql.Tx, number int64, was *kept) error {
	texts := r.store.sql
	if c := r.Content; c != nil {
		_, err := execLarge(ctx, tx, len(c.Payload)+len(r.metadata), texts.setContent, c.State, text(c.Codec, maxNameBytes), []byte(c.UUID), r.metadata, c.Payload, number)
		if err != nil {
			return err
		}
	}
	if r.Version == 0 || r.Status == stores.StatusPending {
		return nil
	}
	if err := one(tx.ExecContext(ctx, texts.setStatus, r.Status, r.consumer, r.Key.ID)); err != nil {
		return err
	}
	if len(was.orderKey) == 0 {
		return nil
	}
	return advance(ctx, short{tx}, texts, r.consumer, was.orderKey, number)
}

// dueAt is null for messages that are not tried again.
func (r *record) dueAt(now int64) sql.NullInt64 {
	due := max(0, r.DueIn).Microseconds()
	return sql.NullInt64{Int64: now + min(due, math.MaxInt64/4), Valid: r.Status == stores.StatusPending}
}

// orderUntil is null like dueAt.
func (r *record) orderUntil(now int64) sql.NullInt64 {
	until := r.dueAt(now)
	until.Int64 += min(max(0, r.OrderWait).Microseconds(), math.MaxInt64/4)
	return until
}

// kept is what the row has and a record builds on.
type kept struct {
	presumed            bool
	content             stores.ContentState
	attempts, uncounted int
	budgetAt, lastAt    int64
	class, cause, error []byte
	topic, coordinates  []byte
	orderKey, history   []byte
}

func (r *record) readKept(ctx context.Context, tx *sql.Tx, number, revision int64) (kept, error) {
	var k kept
	locked, err := again(ctx, func() (bool, error) {
		err := tx.QueryRowContext(ctx, r.store.sql.read, r.consumer, r.Key.ID, number, revision).
			Scan(&k.presumed, &k.content, &k.attempts, &k.uncounted, &k.budgetAt, &k.lastAt, &k.class, &k.cause, &k.error, &k.topic, &k.coordinates, &k.orderKey, &k.history)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil && !locked {
		err = fmt.Errorf("%w: %s", stores.ErrChanged, r.Key)
	}
	return k, err
}

// history returns the attempts with this one, the last of them.
func (r *record) history(was *kept, now int64) ([]byte, error) {
	var attempts []stores.AttemptRecord
	if json.Unmarshal(was.history, &attempts) != nil {
		attempts = nil // a history that cannot be read keeps no message from being recorded
	}
	switch {
	case !r.Start:
		attempts = append(attempts, stores.AttemptRecord{
			At: time.UnixMicro(now).UTC(), Class: stores.Class(text(string(r.Class), maxNameBytes)), Error: sqlstore.Text(r.Error, stores.MaxHistoryErrorBytes),
		})
	case was.presumed: // the attempt before this one has never ended
		attempts = append(attempts, stores.AttemptRecord{At: time.UnixMicro(was.lastAt).UTC(), Class: stores.ClassCrash})
	}
	if more := len(attempts) - stores.MaxHistory; more > 0 {
		attempts = attempts[more:]
	}
	if len(attempts) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal(attempts)
}

// one returns ErrChanged if a guarded statement has found nothing to change.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return stores.ErrChanged
}
