package storetest

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// What the checks of failed messages have in common.

// later is when messages are due that must not be due during a check.
const later = time.Hour

// reserve is how long reservations last that must not end during a check.
const reserve = time.Hour

// failureOf returns a first failure of the claim's message, parked and due at once.
func failureOf(c stores.Claim) stores.Failure {
	const text = "storetest: connection 17 refused"
	return stores.Failure{
		Key:         c.Key,
		Fingerprint: c.Fingerprint,
		TraceParent: c.TraceParent,
		Status:      stores.StatusPending,
		Placement:   stores.PlacementParked,
		Attempts:    1,
		OrderWait:   time.Hour,
		Class:       stores.ClassTransient,
		Error:       text,
		Cause:       stores.CauseOf(stores.ClassTransient, text),
		Topic:       topic,
		Coordinates: "storetest topic/0/1042",
		OrderKey:    c.OrderKey,
		Content: &stores.Content{
			State:    stores.ContentKept,
			UUID:     string(c.Key.ID),
			Metadata: map[string]string{"key": "value"},
			Payload:  []byte("payload of " + string(c.Key.ID)),
			Facts:    stores.Facts{Key: []byte("customer 7"), NativeID: "native " + string(c.Key.ID), Time: taken},
		},
	}
}

// taken is when a broker took a message, to the nanosecond.
var taken = time.Unix(1_790_000_000, 123_456_789).UTC()

// changed returns f after change.
func changed(f stores.Failure, change func(*stores.Failure)) stores.Failure {
	change(&f)
	return f
}

// redelivered makes a failure one that the broker keeps.
func redelivered(f *stores.Failure) {
	f.Placement = stores.PlacementRedelivered
	f.Content = nil
}

// settledFor makes a failure the last one.
func settledFor(f *stores.Failure) { f.Status = stores.StatusFailed }

// record records a failure that nothing stands in the way of.
func (b *bench) record(store stores.Failures, f stores.Failure) (version int64) {
	b.tb.Helper()
	version, err := store.Record(b.ctx, f)
	if err != nil {
		b.tb.Fatalf("Record(%s, version %d): %v", f.Key, f.Version, err)
	}
	if version == 0 || f.Version != 0 && version != f.Version+1 {
		b.tb.Errorf("Record(%s, version %d) = version %d, want the next one", f.Key, f.Version, version)
	}
	return version
}

// fails records a first failure of a message with that id, changed.
func (b *bench) fails(store stores.Failures, id string, changes ...func(*stores.Failure)) (version int64) {
	b.tb.Helper()
	f := failureOf(claimFor(id, id))
	for _, change := range changes {
		change(&f)
	}
	return b.record(store, f)
}

// refuses records a failure that must change nothing, promptly. busy allows
// ErrUnavailable, too.
func (b *bench) refuses(store stores.Failures, f stores.Failure, busy bool, what string) {
	b.tb.Helper()
	before := b.snapshot()
	var err error
	b.within(promptly, what, func() { _, err = store.Record(b.ctx, f) })
	targets := []error{stores.ErrChanged}
	if busy {
		targets = append(targets, stores.ErrUnavailable)
	}
	wantErr(b.tb, what, err, targets...)
	b.unchanged(before, what)
}

// take begins an attempt that takes over the failed row in that version.
func (b *bench) take(store stores.Inbox, c stores.Claim, version int64) stores.Attempt {
	b.tb.Helper()
	c.Take = version
	return b.win(store, c)
}

// due asks for messages of the suite's consumer.
func (b *bench) due(store stores.Retries, limit int) []stores.Retry {
	b.tb.Helper()
	due, err := store.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: limit, Reserve: reserve})
	if err != nil {
		b.tb.Fatalf("Due: %v", err)
	}
	if len(due) > limit {
		b.tb.Errorf("Due returned %d messages with a limit of %d", len(due), limit)
	}
	return due
}

// wantDue fails unless exactly these messages are due, in any order. They are reserved
// from then on.
func (b *bench) wantDue(store stores.Retries, ids ...string) []stores.Retry {
	b.tb.Helper()
	due := b.due(store, len(ids)+10)
	got := idsOf(due)
	slices.Sort(got)
	if slices.Sort(ids); !slices.Equal(got, ids) {
		b.tb.Errorf("due are %q, want %q", got, ids)
	}
	return due
}

func idsOf(due []stores.Retry) []string {
	ids := make([]string, len(due))
	for i, r := range due {
		ids[i] = string(r.Key.ID)
	}
	return ids
}

// claimOf returns the claim of a retry worker.
func claimOf(r stores.Retry) stores.Claim {
	return stores.Claim{Key: r.Key, Fingerprint: r.Fingerprint, TraceParent: r.TraceParent, Bound: checkTimeout, Take: r.State.Version}
}

// failed is a row of the table of failures.
type failed struct {
	key                stores.Key
	version            int64
	number             int64
	state              stores.FailureState // without times
	reserved           bool
	due                bool // there is a time for the next attempt
	redrives           int
	cause, error       string
	topic, coordinates string
	orderKey           []byte
	content            stores.Content
	history            []stores.AttemptRecord
}

// failures returns what has failed, the first one first.
func (b *bench) failures() []failed {
	b.tb.Helper()
	var all []failed
	b.query(`SELECT c.service, c.handler, f.message_id, f.number, f.revision, f.status, f.placement, f.content, f.presumed, f.reserved,
f.attempts, f.uncounted, f.redrives, f.due_at IS NOT NULL, f.class, f.cause, f.error, f.history, f.topic, f.coordinates,
f.order_key, f.uuid, f.codec, f.metadata, f.facts, f.payload
FROM millpond_failure f JOIN millpond_consumer c ON c.id = f.consumer ORDER BY f.number`, func(rows *sql.Rows) error {
		var f failed
		var revision int64
		var status, class, history string
		var uuid, metadata, facts []byte
		err := rows.Scan(&f.key.Consumer.Service, &f.key.Consumer.Handler, &f.key.ID, &f.number, &revision, &status,
			&f.state.Placement, &f.content.State, &f.state.Presumed, &f.reserved,
			&f.state.Attempts, &f.state.Uncounted, &f.redrives, &f.due, &class, &f.cause, &f.error, &history, &f.topic, &f.coordinates,
			&f.orderKey, &uuid, &f.content.Codec, &metadata, &facts, (*blob)(&f.content.Payload))
		if err != nil {
			return err
		}
		if f.state.Status, err = parseStatus(status); err != nil {
			return err
		}
		if f.content.Metadata, err = sqlstore.DecodeMetadata(metadata); err != nil {
			f.content.Metadata = nil // the check that breaks it knows
		}
		if f.content.Facts, err = sqlstore.DecodeFacts(facts); err != nil {
			return err
		}
		f.version = sqlstore.Version(f.number, revision)
		f.state.Version, f.state.Content, f.state.Class, f.content.UUID = f.version, f.content.State, stores.Class(class), string(uuid)
		err = json.Unmarshal([]byte(history), &f.history)
		all = append(all, f)
		return err
	})
	return all
}

// failure returns the row of a message of the suite's consumer, or fails.
func (b *bench) failure(id string) failed {
	b.tb.Helper()
	f := b.failureOf(stores.Key{Consumer: consumer, ID: []byte(id)})
	if f == nil {
		b.tb.Fatalf("%.100q has no row among the failures", id)
		return failed{}
	}
	return *f
}

// failureOf returns the row of a key, nil if there is none.
func (b *bench) failureOf(k stores.Key) *failed {
	b.tb.Helper()
	for _, f := range b.failures() {
		if f.key.String() == k.String() {
			return &f
		}
	}
	return nil
}

// paired fails unless the inbox and the table of failures tell the same.
func (b *bench) paired() {
	b.tb.Helper()
	statuses := make(map[string]stores.Status)
	for _, f := range b.failures() {
		statuses[f.key.Consumer.String()+" "+string(f.key.ID)] = f.state.Status
	}
	for _, r := range b.rows() {
		name := r.consumer.String() + " " + string(r.id)
		status, has := statuses[name]
		switch {
		case r.completed && has:
			b.tb.Errorf("%q is completed and has a row among the failures", name)
		case !r.completed && status != r.status:
			b.tb.Errorf("%q is %s in the inbox and %s among the failures", name, r.status, status)
		}
		delete(statuses, name)
	}
	for name := range statuses {
		b.tb.Errorf("%q has a row among the failures and none in the inbox", name)
	}
}

// sameContent fails unless got is what was to be kept.
func (b *bench) sameContent(what string, got, want stores.Content) {
	b.tb.Helper()
	if got.State != want.State || got.Codec != want.Codec || got.UUID != want.UUID || !maps.Equal(got.Metadata, want.Metadata) || !sameBytes(got.Payload, want.Payload) {
		b.tb.Errorf("%s: the content is kept as %.200q, want %.200q", what, fmt.Sprint(got), fmt.Sprint(want))
	}
	b.sameFacts(what, got.Facts, want.Facts)
}

// sameFacts fails unless got is what the broker said.
func (b *bench) sameFacts(what string, got, want stores.Facts) {
	b.tb.Helper()
	if !sameBytes(got.Key, want.Key) || !bytes.Equal(got.RanAs, want.RanAs) || got.NativeID != want.NativeID || !got.Time.Equal(want.Time) || got.Time.IsZero() != want.Time.IsZero() ||
		got.KeyWasNil != want.KeyWasNil || got.PayloadWasNil != want.PayloadWasNil {
		b.tb.Errorf("%s: the facts are kept as %.200q, want %.200q", what, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
	}
}

// sameBytes tells nil from empty: a tombstone has no payload.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
