package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// failureOf is a message that is parked, with its content, and due.
func failureOf(id string) stores.Failure {
	return stores.Failure{
		Key: claimOf(id).Key, Fingerprint: fingerprintOf(id),
		Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1,
		Class: stores.ClassTransient, Error: "it fails", Cause: "cause",
		Topic: "orders", Coordinates: "0/1",
		Content: &stores.Content{State: stores.ContentKept, UUID: "u" + id, Payload: []byte(id), Metadata: map[string]string{"k": id}},
	}
}

// redelivered is a message that the broker keeps.
func redelivered(id string, dueIn time.Duration) stores.Failure {
	f := failureOf(id)
	f.Placement, f.DueIn, f.Content = stores.PlacementRedelivered, dueIn, nil
	return f
}

func (o opened) record(f stores.Failure) int64 {
	o.t.Helper()
	version, err := o.Record(o.t.Context(), f)
	require.NoError(o.t, err)
	return version
}

// message is the row of a key as operators see it.
func (o opened) message(id string) stores.Message {
	o.t.Helper()
	m, err := o.Find(o.t.Context(), claimOf(id).Key)
	require.NoError(o.t, err)
	require.NoError(o.t, m.Unreadable)
	return m
}

// rows are the rows of a table of millpond's, as text without the times.
func (o opened) dump() string {
	o.t.Helper()
	var dump string
	for _, query := range []string{
		"SELECT json_group_array(json_array(hex(message_id), status, hex(fingerprint), hex(traceparent), completed_at)) FROM millpond_inbox",
		"SELECT json_group_array(json_array(number, revision, status, placement, presumed, reserved, attempts, due_at, error, history)) FROM millpond_failure",
	} {
		var rows string
		require.NoError(o.t, o.DB().QueryRow(query).Scan(&rows))
		dump += rows + "\n"
	}
	return dump
}

// unchanged fails if act changes anything.
func (o opened) unchanged(act func()) {
	o.t.Helper()
	before := o.dump()
	act()
	require.Equal(o.t, before, o.dump())
}

func TestRecordAndLook(t *testing.T) {
	o := open(t)
	f := failureOf("a")
	f.DueIn, f.OrderKey = time.Minute, []byte("customer")
	f.TraceParent, _ = stores.ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	version := o.record(f)

	verdict := o.answer(claimOf("a"), true)
	require.Equal(t, stores.Parked, verdict.Outcome)
	require.Equal(t, verdict.Outcome, o.verdict(claimOf("a")).Outcome)
	state := verdict.Failure
	require.InDelta(t, time.Minute, state.DueIn, float64(10*time.Second))
	require.Less(t, state.Age, 10*time.Second)
	state.DueIn, state.Age = 0, 0
	require.Equal(t, stores.FailureState{
		Version: version, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Content: stores.ContentKept, Class: stores.ClassTransient, Attempts: 1,
	}, state)

	m := o.message("a")
	require.Equal(t, "ua", m.UUID)
	require.Equal(t, []byte("a"), m.Payload)
	require.Equal(t, f.Content.Metadata, m.Metadata)
	require.Equal(t, f.TraceParent, m.TraceParent)
	require.Equal(t, []string{"it fails", "cause", "orders", "0/1", "customer"}, []string{m.Error, m.Cause, m.Topic, m.Coordinates, string(m.OrderKey)})
	require.Len(t, m.History, 1)
	require.WithinDuration(t, time.Now(), m.History[0].At, 10*time.Second)

	// What is not given stays, the rest is replaced.
	again := stores.Failure{
		Key: f.Key, Version: version, Status: stores.StatusFailed, Placement: stores.PlacementParked,
		Attempts: 2, Uncounted: 3, Class: stores.ClassPermanent, Error: "for good",
	}
	next := o.record(again)
	require.NotEqual(t, version, next)
	verdict = o.answer(claimOf("a"), false)
	require.Equal(t, stores.Final, verdict.Outcome)
	require.Equal(t, stores.StatusFailed, verdict.Failure.Status)
	require.Zero(t, verdict.Failure.DueIn)
	m = o.message("a")
	require.Equal(t, []byte("a"), m.Payload)
	require.Equal(t, []string{"for good", "orders", "0/1", "customer"}, []string{m.Error, m.Topic, m.Coordinates, string(m.OrderKey)})
	require.Equal(t, []int{2, 3}, []int{m.Attempts, m.Uncounted})
	require.Equal(t, stores.ClassPermanent, m.History[1].Class)
	require.True(t, m.DueAt.IsZero())

	conflict := claimOf("a")
	conflict.Fingerprint = fingerprintOf("other")
	require.Equal(t, stores.Conflict, o.answer(conflict, true).Outcome)
	require.Equal(t, stores.Conflict, o.answer(conflict, false).Outcome)
}

// Nothing is recorded over what is not as it was seen.
func TestRecordIsGuarded(t *testing.T) {
	o := open(t)
	o.complete(claimOf("completed"))
	failed := failureOf("failed")
	failed.Status = stores.StatusFailed
	failed.Version = o.record(failed)
	pending := failureOf("pending")
	pending.Version = o.record(pending)
	stale := pending
	pending.Version = o.record(pending)

	completed := failureOf("completed")
	guessed := completed
	guessed.Version = pending.Version
	absent := failureOf("absent")
	absent.Version = sqlstore.Version(77, 0)
	first := failureOf("pending")
	for name, f := range map[string]stores.Failure{
		"completed": completed, "completed with a version": guessed, "failed": failed,
		"changed": stale, "exists": first, "does not exist": absent,
	} {
		o.unchanged(func() {
			_, err := o.Record(t.Context(), f)
			require.ErrorIs(t, err, stores.ErrChanged, name)
		})
	}

	// Not to be written at all.
	for name, change := range map[string]func(*stores.Failure){
		"parked without content": func(f *stores.Failure) { f.Content = nil },
		"parked, not kept":       func(f *stores.Failure) { f.Content = &stores.Content{State: stores.ContentTooLarge} },
		"status":                 func(f *stores.Failure) { f.Status = stores.StatusCompleted },
		"placement":              func(f *stores.Failure) { f.Placement = 0 },
		"key":                    func(f *stores.Failure) { f.Key.ID = nil },
		"consumer":               func(f *stores.Failure) { f.Key.Consumer.Handler = "unknown" },
	} {
		f := failureOf("new")
		change(&f)
		o.unchanged(func() {
			_, err := o.Record(t.Context(), f)
			require.Error(t, err, name)
			require.NotErrorIs(t, err, stores.ErrChanged, name)
		})
	}
	o.unchanged(func() { // a parked row whose content is taken away
		f := pending
		f.Content = &stores.Content{State: stores.ContentOff}
		_, err := o.Record(t.Context(), f)
		require.Error(t, err)
	})
}

// What concerns a key in flight is answered while its handler holds the writer.
func TestNothingWaitsForTheHandlerOfTheKey(t *testing.T) {
	o := open(t)
	version := o.record(failureOf("a"))
	reserved, err := o.Due(t.Context(), stores.DueQuery{Consumer: billing, Limit: 1, Reserve: time.Millisecond})
	require.NoError(t, err)
	require.Len(t, reserved, 1)
	require.NotEqual(t, version, reserved[0].State.Version)
	require.Eventually(t, func() bool { return o.message("a").DueIn < 0 }, 30*time.Second, time.Millisecond)

	take := claimOf("a")
	take.Take = reserved[0].State.Version
	a := o.begin(take)
	ctx := within(t, 5*time.Second)
	f := failureOf("a")
	_, err = o.Record(ctx, f)
	require.ErrorIs(t, err, stores.ErrChanged)
	f.Version = take.Take
	_, err = o.Record(ctx, f)
	require.ErrorIs(t, err, stores.ErrChanged)
	require.NoError(t, o.Release(ctx, reserved))
	due, err := o.Due(ctx, stores.DueQuery{Consumer: billing, Limit: 1, Reserve: time.Minute})
	require.NoError(t, err)
	require.Empty(t, due)
	changed, err := o.Change(ctx, stores.Change{Verb: stores.VerbDiscard, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, stores.Changed{Busy: 1, Next: 1, Done: true}, changed)
	require.Equal(t, stores.InFlight, o.verdict(take).Outcome)
	require.Equal(t, stores.Parked, o.answer(take, true).Outcome)

	// Another key's waits, no longer than its context.
	_, err = o.Record(within(t, 20*time.Millisecond), failureOf("b"))
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.Equal(t, 1, waiting(o))
	require.NoError(t, a.Commit(t.Context()))
	o.record(failureOf("b"))
}

func TestErrorsAreBounded(t *testing.T) {
	o := open(t)
	f := failureOf("a")
	f.Error = strings.Repeat("\x00\xff\x1b[31mä", 1<<20)
	f.Class, f.Cause = stores.Class(strings.Repeat("\x00c", 1000)), "\xff"
	f.Version = o.record(f)
	m := o.message("a")
	require.LessOrEqual(t, len(m.Error), stores.MaxErrorBytes)
	require.Greater(t, len(m.Error), stores.MaxErrorBytes-10)
	require.True(t, strings.HasPrefix(m.Error, "\uFFFD\uFFFD\x1b[31mä\uFFFD"))

	for i := range 3 * stores.MaxHistory {
		f.Error = fmt.Sprint(i, strings.Repeat("\x01", 1<<10))
		f.Version = o.record(f)
	}
	m = o.message("a")
	require.Len(t, m.History, stores.MaxHistory)
	for i, attempt := range m.History {
		require.True(t, strings.HasPrefix(attempt.Error, fmt.Sprint(2*stores.MaxHistory+i)))
		require.LessOrEqual(t, len(attempt.Error), stores.MaxHistoryErrorBytes)
	}

	// A history that was spoilt is begun anew.
	_, err := o.DB().Exec("UPDATE millpond_failure SET history = 'spoilt'")
	require.NoError(t, err)
	m, err = o.Message(t.Context(), m.Number)
	require.NoError(t, err)
	require.Error(t, m.Unreadable)
	o.record(f)
	require.Len(t, o.message("a").History, 1)
}

func TestTextIsCutBetweenRunes(t *testing.T) {
	require.Equal(t, "ää", sqlstore.Text("äää", 5))
	require.Equal(t, "äää", sqlstore.Text("äää", 6))
	require.Equal(t, "\uFFFD", sqlstore.Text("\xff", 3))
	require.Empty(t, sqlstore.Text("\xff", 2))
}

func TestTooLargeContent(t *testing.T) {
	o := open(t)
	o.maxRow = 1 << 10
	for name, content := range map[string]stores.Content{
		"payload":          {State: stores.ContentKept, Payload: make([]byte, 1<<10)},
		"metadata":         {State: stores.ContentKept, Metadata: map[string]string{"k": strings.Repeat("v", 1<<10)}},
		"metadata, stored": {State: stores.ContentKept, Metadata: map[string]string{"k": strings.Repeat("\xff", 900)}},
	} {
		f := failureOf("a")
		f.Content = &content
		o.unchanged(func() {
			_, err := o.Record(t.Context(), f)
			require.ErrorIs(t, err, stores.ErrTooLarge, name)
		})
	}
	o.maxRow = maxRow
	o.record(failureOf("a"))
}

// Starts are counted before the attempt, and leave an entry only if nothing else does.
func TestPresumption(t *testing.T) {
	o := open(t)
	start := redelivered("a", 0)
	start.Start, start.Class, start.Error = true, "", ""
	start.Version = o.record(start)
	require.True(t, o.message("a").Presumed)
	require.Empty(t, o.message("a").History)

	start.Attempts = 2
	start.Version = o.record(start) // the process of the first has died
	m := o.message("a")
	require.True(t, m.Presumed)
	require.Len(t, m.History, 1)
	require.Equal(t, stores.ClassCrash, m.History[0].Class)

	end := redelivered("a", 0)
	end.Version, end.Attempts = start.Version, 2
	end.Version = o.record(end)
	m = o.message("a")
	require.False(t, m.Presumed)
	require.Equal(t, []stores.Class{stores.ClassCrash, stores.ClassTransient}, []stores.Class{m.History[0].Class, m.History[1].Class})

	start.Version, start.Attempts = end.Version, 3
	o.record(start)
	m = o.message("a")
	require.Len(t, m.History, 2)
	require.Equal(t, "it fails", m.Error, "a start says nothing new of the failure")
}

// A version fits the contract's however often a row was changed.
func TestRevisionStartsAgain(t *testing.T) {
	o := open(t)
	f := redelivered("a", 0)
	number, _ := sqlstore.ParseVersion(o.record(f))
	const last = 1<<20 - 1
	_, err := o.DB().Exec("UPDATE millpond_failure SET revision = ?", last)
	require.NoError(t, err)
	f.Version = sqlstore.Version(number, last)
	f.Version = o.record(f)
	require.Equal(t, sqlstore.Version(number, 0), f.Version)
	o.record(f)
}

func TestHistoryIsJSON(t *testing.T) {
	o := open(t)
	o.record(failureOf("a"))
	var text string
	require.NoError(t, o.DB().QueryRow("SELECT history FROM millpond_failure WHERE json_valid(history)").Scan(&text))
	var history []map[string]string
	require.NoError(t, json.Unmarshal([]byte(text), &history))
	_, err := time.Parse(time.RFC3339, history[0]["at"])
	require.NoError(t, err)
	require.Equal(t, "transient", history[0]["class"])
	require.Equal(t, "it fails", history[0]["error"])
}
