package sqlstore

import (
	"context"
	"math"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectNow   = `SELECT {now}`
	findInbox   = `SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ?{nowait}`
	insertInbox = `{unless locked}INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent) VALUES (?, ?, ?, ?, ?)`

	insertFailure = `INSERT INTO {schema.}{prefix}failure (status, placement, presumed, attempts, uncounted, due_at, order_until,
	budget_at, last_at, class, cause, error, topic, coordinates, order_key, history, holder, consumer, message_id, first_at, content)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`
	updateFailure = `UPDATE {schema.}{prefix}failure SET {changed}, reserved = false, suspect = false, status = ?, placement = ?, presumed = ?,
	attempts = ?, uncounted = ?, due_at = ?, order_until = ?, budget_at = ?, last_at = ?, class = ?, cause = ?, error = ?,
	topic = ?, coordinates = ?, order_key = ?, history = ?, holder = ?
WHERE number = ?`
	readFailure = `SELECT f.presumed, f.content, f.attempts, f.uncounted, f.budget_at, f.last_at, f.class, f.cause, f.error,
	f.topic, f.coordinates, f.order_key, f.history FROM {both}
WHERE f.consumer = ? AND f.message_id = ? AND f.number = ? AND f.revision = ? AND f.status = 3`
	lapsed = ` AND f.due_at <= {now}`

	setContent = `UPDATE {schema.}{prefix}failure SET content = ?, codec = ?, uuid = ?, metadata = ?, facts = ?, payload = ? WHERE number = ?`
	setStatus  = `UPDATE {schema.}{prefix}inbox SET status = ? WHERE consumer = ? AND message_id = ? AND status = 3`

	keepContent = `UPDATE {schema.}{prefix}failure SET {changed}, content = ?, codec = ?, uuid = ?, metadata = ?, facts = ?, payload = ?
WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND (status = 4 OR status = 5) AND content = 0`
)

// record is a failure being written.
type record struct {
	stores.Failure
	t        *Tables
	advance  Advance
	consumer int64
	encoded  Encoded
	now      int64
	was      kept
}

// Advance makes the order key's message after the given number due, unless it is locked; then it
// becomes due at its own time.
type Advance func(ctx context.Context, on Sender, consumer int64, orderKey []byte, after int64) error

// Record implements stores.Failures for databases without a single statement for it, in a short
// transaction that waits for no lock.
func (t *Tables) Record(ctx context.Context, f stores.Failure, advance Advance) (version int64, err error) {
	r := record{t: t, advance: advance}
	if r.consumer, err = t.Known(f.Key); err != nil {
		return 0, err
	}
	if f, r.encoded, err = t.Recordable(f); err != nil {
		return 0, err
	}
	err = t.db.Write(ctx, func(tx Sender) error {
		r.Failure = f
		version, err = r.write(ctx, tx)
		return err
	})
	if err != nil {
		return 0, t.Explain(ctx, err)
	}
	return version, nil
}

// Recordable returns a failure in the form of the columns, or why it cannot be written.
func (t *Tables) Recordable(f stores.Failure) (fit stores.Failure, encoded Encoded, err error) {
	if err = FitFailure(t.name, &f); err == nil && f.Content != nil {
		encoded, err = t.encode(f.Content.Metadata, f.Content.Facts, len(f.Key.ID), len(f.OrderKey), len(f.Content.UUID), len(f.Content.Payload))
	}
	if f.Content != nil {
		c := *f.Content
		c.Codec = Text(c.Codec, maxWordBytes)
		f.Content = &c
	}
	return f, encoded, err
}

// FitFailure makes a failure's texts fit into the columns, or returns what is wrong with it.
func FitFailure(store string, f *stores.Failure) error {
	switch {
	case f.Status != stores.StatusPending && f.Status != stores.StatusFailed:
		return mistakef("%s: record: Status is %s: use pending or failed", store, f.Status)
	case f.Placement != stores.PlacementParked && f.Placement != stores.PlacementRedelivered:
		return mistakef("%s: record: Placement is %s: use parked or redelivered", store, f.Placement)
	}
	f.Class, f.Cause = stores.Class(Text(string(f.Class), maxWordBytes)), Text(f.Cause, maxWordBytes)
	f.Error = Text(f.Error, stores.MaxErrorBytes)
	f.Topic, f.Coordinates = Text(f.Topic, maxPlaceBytes), Text(f.Coordinates, maxPlaceBytes)
	f.OrderKey = NonEmpty(f.OrderKey)
	f.Holder = Text(f.Holder, stores.MaxHolderBytes)
	return nil
}

// ErrNotParkable: no worker could run the message.
var ErrNotParkable = mistakef("a failure that is parked needs content in the state kept")

// write makes the guarded change in tx. It has locked the rows that it read.
func (r *record) write(ctx context.Context, tx Sender) (version int64, err error) {
	if _, err := First(ctx, tx, Statement{Text: r.t.fixed(selectNow)}, &r.now); err != nil {
		return 0, err
	}
	number, revision := ParseVersion(r.Version)
	if err := r.read(ctx, tx, number, revision); err != nil {
		return 0, err
	}
	if r.Content != nil {
		r.was.content = r.Content.State
	}
	if r.Placement == stores.PlacementParked && r.was.content != stores.ContentKept {
		return 0, ErrNotParkable
	}
	values := r.values()
	if r.Version == 0 {
		number, err = r.insert(ctx, tx, values)
	} else {
		_, err = tx.Send(ctx, Statement{Text: r.t.fixed(updateFailure), Args: append(values, number)})
		_, revision = ParseVersion(Version(0, revision+1))
	}
	if err != nil {
		return 0, err
	}
	return Version(number, revision), r.rest(ctx, tx, number)
}

// values are the values of both statements, in order. Empty ones leave the column unchanged.
func (r *record) values() []any {
	if r.Start && r.Class == "" { // nothing new is known about the failure
		r.Class, r.Cause, r.Error = r.was.class, r.was.cause, r.was.error
	}
	history := "[]"
	if attempts := Remember(r.was.history, &r.Failure, r.was.presumed, r.was.lastAt, r.now); attempts != nil {
		history = string(attempts)
	}
	budgetAt := r.was.budgetAt
	if r.was.attempts == 0 && r.was.uncounted == 0 {
		budgetAt = r.now
	}
	if len(r.OrderKey) > 0 {
		r.was.orderKey = r.OrderKey
	}
	if r.Topic == "" {
		r.Topic = r.was.topic
	}
	if r.Coordinates == "" {
		r.Coordinates = r.was.coordinates
	}
	var dueAt, orderUntil any // null for messages that are not tried again
	if r.Status == stores.StatusPending {
		due := r.now + min(max(0, r.DueIn).Microseconds(), math.MaxInt64/4)
		dueAt, orderUntil = due, due+min(max(0, r.OrderWait).Microseconds(), math.MaxInt64/4)
	}
	return []any{
		int64(r.Status), int64(r.Placement), r.Start, r.Attempts, r.Uncounted, dueAt, orderUntil, budgetAt, r.now,
		string(r.Class), r.Cause, r.Error, r.Topic, r.Coordinates, NonEmpty(r.was.orderKey), history, r.holder(),
	}
}

// holder returns the lease's holder, or null.
func (r *record) holder() any {
	if !r.Start || r.Holder == "" {
		return nil
	}
	return r.Holder
}

// insert inserts both rows, unless the key has an inbox row or another transaction holds it.
func (r *record) insert(ctx context.Context, tx Sender, values []any) (number int64, err error) {
	var status int64
	found, err := First(ctx, tx, Statement{Text: r.t.fixed(findInbox), Args: []any{r.consumer, r.Key.ID}}, &status)
	if err == nil && !found {
		_, err = tx.Send(ctx, Statement{Text: r.t.fixed(insertInbox), Args: []any{
			r.consumer, r.Key.ID, int64(r.Status), r.Fingerprint.Bytes(), TraceBytes(&r.TraceParent),
		}})
	}
	if found || r.t.db.Taken(err) {
		return 0, stores.ErrChanged
	}
	if err != nil {
		return 0, err
	}
	_, err = tx.Send(ctx, Statement{Text: r.t.fixed(insertFailure), Args: append(values, r.consumer, r.Key.ID, r.now), Inserted: &number})
	return number, err
}

// rest changes the columns that only some records change.
func (r *record) rest(ctx context.Context, tx Sender, number int64) error {
	if r.Content != nil {
		if _, err := tx.Send(ctx, Statement{Text: r.t.fixed(setContent), Args: append(contentArgs(r.Content, r.encoded), number)}); err != nil {
			return err
		}
	}
	if r.Version == 0 || r.Status == stores.StatusPending {
		return nil
	}
	err := one(tx.Send(ctx, Statement{Text: r.t.fixed(setStatus), Args: []any{int64(r.Status), r.consumer, r.Key.ID}}))
	if err != nil || len(r.was.orderKey) == 0 {
		return err
	}
	return r.advance(ctx, tx, r.consumer, r.was.orderKey, number)
}

func contentArgs(c *stores.Content, e Encoded) []any {
	return []any{int64(c.State), Text(c.Codec, maxWordBytes), []byte(c.UUID), e.Metadata, e.Facts, c.Payload}
}

// KeepContent implements stores.Failures, in one commit.
func (s Store) KeepContent(ctx context.Context, k stores.Key, version int64, c stores.Content) error {
	consumer, err := s.t.Known(k)
	if err != nil {
		return err
	}
	encoded, err := s.t.encode(c.Metadata, c.Facts, len(k.ID), len(c.UUID), len(c.Payload))
	if err != nil {
		return err
	}
	number, revision := ParseVersion(version)
	args := append(contentArgs(&c, encoded), consumer, k.ID, number, revision)
	if err := one(s.t.exec(ctx, Statement{Text: s.t.fixed(keepContent), Args: args})); err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
