package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Look implements stores.Failures. It waits for no writer.
func (s *Store) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	consumer, err := s.consumerOf(k)
	if err != nil {
		return stores.Verdict{}, err
	}
	row, err := s.lookUp(ctx, consumer, k.ID)
	if err != nil {
		return stores.Verdict{}, fmt.Errorf("sqlite: look: %w", s.explain(ctx, err))
	}
	if row.Status == 0 {
		return stores.Verdict{Outcome: stores.Claimable}, nil
	}
	verdict, err := row.Verdict(f)
	if err != nil {
		return stores.Verdict{}, fmt.Errorf("sqlite: look: %w", err)
	}
	return verdict, nil
}

// Record implements stores.Failures. While a handler of the key runs in this process the
// answer comes at once; otherwise records queue for the writer, after claims of the key
// that queue already. Meanwhile the key is in flight itself.
func (s *Store) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	consumer, err := s.consumerOf(f.Key)
	if err != nil {
		return 0, err
	}
	r, err := s.newRecord(consumer, f)
	if err != nil {
		return 0, err
	}
	key := flight{consumer: consumer, id: string(f.Key.ID)}
	switch free, err := s.flights.takeOffAfter(ctx, key); {
	case err != nil:
		return 0, fmt.Errorf("sqlite: record: %w", err)
	case !free:
		return 0, fmt.Errorf("sqlite: record: %w: a handler of it runs", stores.ErrChanged)
	}
	defer s.flights.land(key)
	err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
		version, err = r.write(ctx, tx, &s.sql.failures)
		return err
	})
	switch {
	case err == nil:
		return version, nil
	case isCode(err, sqlite3.SQLITE_TOOBIG):
		return 0, fmt.Errorf("sqlite: %w: %w", stores.ErrTooLarge, err)
	}
	return 0, fmt.Errorf("sqlite: record: %w", s.explain(ctx, err))
}

// consumerOf returns the id of the key's consumer, if the key is one that can have a row.
func (s *Store) consumerOf(k stores.Key) (int64, error) {
	consumer, err := s.consumer(k.Consumer)
	if err != nil {
		return 0, err
	}
	if n := len(k.ID); n == 0 || n > stores.MaxIDBytes {
		return 0, k.Validate()
	}
	return consumer, nil
}

// record is a failure as it is written.
type record struct {
	stores.Failure
	consumer int64
	metadata []byte
}

// newRecord makes f fit for the columns, or says why it cannot be written.
func (s *Store) newRecord(consumer int64, f stores.Failure) (*record, error) {
	switch {
	case f.Status != stores.StatusPending && f.Status != stores.StatusFailed:
		return nil, fmt.Errorf("sqlite: record: Status is %s: use pending or failed", f.Status)
	case f.Placement != stores.PlacementParked && f.Placement != stores.PlacementRedelivered:
		return nil, fmt.Errorf("sqlite: record: Placement is %s: use parked or redelivered", f.Placement)
	}
	r := &record{Failure: f, consumer: consumer}
	r.Class = stores.Class(sqlstore.Text(string(f.Class), maxWordBytes))
	r.Cause = sqlstore.Text(f.Cause, maxWordBytes)
	r.Error = sqlstore.Text(f.Error, stores.MaxErrorBytes)
	r.Topic = sqlstore.Text(f.Topic, maxTopicBytes)
	r.Coordinates = sqlstore.Text(f.Coordinates, maxTopicBytes)
	size := len(f.Key.ID) + len(f.OrderKey)
	if c := f.Content; c != nil {
		size += len(c.UUID) + len(c.Payload)
		for name, value := range c.Metadata {
			size += len(name) + len(value)
		}
		if size > s.maxRow {
			return nil, s.tooLarge(size)
		}
		var err error
		if r.metadata, err = sqlstore.EncodeMetadata(c.Metadata); err != nil {
			return nil, err
		}
		size = len(f.Key.ID) + len(f.OrderKey) + len(c.UUID) + len(c.Payload) + len(r.metadata)
	}
	if size > s.maxRow {
		return nil, s.tooLarge(size)
	}
	return r, nil
}

// maxWordBytes is how much is kept of what should be a word.
const maxWordBytes = 200

// write makes the guarded change in tx, which has the lock: what it reads stays true.
func (r *record) write(ctx context.Context, tx *sql.Tx, texts *failureStatements) (version int64, err error) {
	var now int64
	if err := tx.QueryRowContext(ctx, texts.now).Scan(&now); err != nil {
		return 0, err
	}
	number, revision := sqlstore.ParseVersion(r.Version)
	was := kept{history: []byte("[]")}
	if r.Version == 0 {
		err = r.newRow(ctx, tx, texts)
	} else {
		was, err = readKept(ctx, tx, texts, r.consumer, r.Key.ID, number, revision)
	}
	if err != nil {
		return 0, err
	}
	if r.Content != nil {
		was.content = r.Content.State
	}
	if r.Placement == stores.PlacementParked && was.content != stores.ContentKept {
		return 0, fmt.Errorf("a message whose content is %s cannot be parked", was.content)
	}
	if r.Start && r.Class == "" { // nothing new is known of the failure
		r.Class, r.Cause, r.Error = stores.Class(was.class), was.cause, was.error
	}
	history, err := r.history(was, time.UnixMicro(now))
	if err != nil {
		return 0, err
	}
	args := []any{
		r.consumer, r.Key.ID, r.Status, r.Placement, r.Start, r.Attempts, r.Uncounted, r.dueAt(now), now,
		string(r.Class), r.Cause, r.Error, r.Topic, r.Coordinates, sqlstore.NonEmpty(r.OrderKey), history, r.orderUntil(now),
	}
	if r.Version == 0 {
		inserted, err := tx.ExecContext(ctx, texts.insert, args...)
		if err != nil {
			return 0, err
		}
		if number, err = inserted.LastInsertId(); err != nil {
			return 0, err
		}
	} else {
		if err := one(tx.ExecContext(ctx, texts.update, append(args, number, revision)...)); err != nil {
			return 0, err
		}
		revision = (revision + 1) & maxRevision
	}
	return sqlstore.Version(number, revision), r.rest(ctx, tx, texts, number, was)
}

// newRow inserts the row of the inbox, unless the key has one.
func (r *record) newRow(ctx context.Context, tx *sql.Tx, texts *failureStatements) error {
	var trace []byte
	if !r.TraceParent.IsZero() {
		trace = r.TraceParent[:]
	}
	return one(tx.ExecContext(ctx, texts.insertInbox, r.consumer, r.Key.ID, r.Status, r.Fingerprint.Bytes(), trace))
}

// rest changes what not every record changes.
func (r *record) rest(ctx context.Context, tx *sql.Tx, texts *failureStatements, number int64, was kept) error {
	if c := r.Content; c != nil {
		_, err := tx.ExecContext(ctx, texts.setContent, c.State, sqlstore.Text(c.Codec, maxWordBytes), sqlstore.NonEmpty([]byte(c.UUID)),
			r.metadata, c.Payload, number)
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
	orderKey := r.OrderKey
	if len(orderKey) == 0 {
		orderKey = was.orderKey
	}
	if len(orderKey) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, texts.advance, r.consumer, orderKey)
	return err
}

// dueAt is null for messages that are not tried again.
func (r *record) dueAt(now int64) sql.NullInt64 {
	return sql.NullInt64{Int64: now + max(0, r.DueIn).Microseconds(), Valid: r.Status == stores.StatusPending}
}

// orderUntil is null like dueAt.
func (r *record) orderUntil(now int64) sql.NullInt64 {
	until := r.dueAt(now)
	until.Int64 += max(0, r.OrderWait).Microseconds()
	return until
}

// kept is what the row has and a record builds on.
type kept struct {
	presumed            bool
	content             stores.ContentState
	lastAt              int64
	class, cause, error string
	orderKey, history   []byte
}

func readKept(ctx context.Context, tx *sql.Tx, texts *failureStatements, consumer int64, id []byte, number, revision int64) (kept, error) {
	var k kept
	err := tx.QueryRowContext(ctx, texts.read, consumer, id, number, revision).
		Scan(&k.presumed, &k.content, &k.lastAt, &k.class, &k.cause, &k.error, &k.orderKey, &k.history)
	if errors.Is(err, sql.ErrNoRows) {
		err = stores.ErrChanged
	}
	return k, err
}

// history returns the attempts with this one, the last of them.
func (r *record) history(was kept, now time.Time) (string, error) {
	var attempts []stores.AttemptRecord
	if json.Unmarshal(was.history, &attempts) != nil {
		attempts = nil // a history that cannot be read keeps no message from being recorded
	}
	switch {
	case !r.Start:
		attempts = append(attempts, stores.AttemptRecord{At: now.UTC(), Class: r.Class, Error: sqlstore.Text(r.Error, stores.MaxHistoryErrorBytes)})
	case was.presumed: // the attempt before this one has never ended
		attempts = append(attempts, stores.AttemptRecord{At: time.UnixMicro(was.lastAt).UTC(), Class: stores.ClassCrash})
	}
	if more := len(attempts) - stores.MaxHistory; more > 0 {
		attempts = attempts[more:]
	}
	if len(attempts) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(attempts)
	return string(b), err
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
