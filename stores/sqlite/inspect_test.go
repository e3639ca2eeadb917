package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func messageIDs(messages []stores.Message) string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = string(m.Key.ID)
	}
	return strings.Join(ids, " ")
}

// operated is a store with failed messages of every kind, as an operator's process that
// has registered nothing sees it.
func operated(t *testing.T) (o opened, inspector *Store) {
	t.Helper()
	o = open(t)
	other := stores.Consumer{Service: billing.Service, Handler: "other"}
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: other}))
	for i, change := range []func(f *stores.Failure){
		func(*stores.Failure) {},
		func(f *stores.Failure) { f.Status, f.Class = stores.StatusFailed, stores.ClassPermanent },
		func(f *stores.Failure) { f.Topic, f.Cause = "refunds", "another" },
		func(f *stores.Failure) { f.Error = "100%_'ö\\" },
		func(f *stores.Failure) { f.Key.Consumer = other },
		func(f *stores.Failure) { f.Placement, f.Content = stores.PlacementRedelivered, nil },
	} {
		f := failureOf(fmt.Sprint(i + 1))
		change(&f)
		o.record(f)
	}
	o.complete(claimOf("completed"))
	inspector, err := New(t.Context(), o.path, Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inspector.Close()) })
	return o, inspector
}

func TestMessagesByFilter(t *testing.T) {
	o, s := operated(t)
	_, err := o.Change(t.Context(), stores.Change{Verb: stores.VerbDiscard, Limit: 1, Filter: stores.Filter{ID: []byte("6")}})
	require.NoError(t, err)
	_, err = o.DB().Exec("UPDATE millpond_failure SET last_at = last_at - 3600000000 WHERE number = 1")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		filter stores.Filter
		want   string
	}{
		"all":            {stores.Filter{}, "5 4 3 2 1"},
		"service":        {stores.Filter{Service: "billing"}, "5 4 3 2 1"},
		"no service":     {stores.Filter{Service: "nobody"}, ""},
		"handler":        {stores.Filter{Handler: "other"}, "5"},
		"status":         {stores.Filter{Status: []stores.Status{stores.StatusFailed, stores.StatusDiscarded}}, "6 2"},
		"no such status": {stores.Filter{Status: []stores.Status{stores.StatusCompleted}}, ""},
		"class":          {stores.Filter{Class: stores.ClassPermanent}, "2"},
		"cause":          {stores.Filter{Cause: "another"}, "3"},
		"cause of one":   {stores.Filter{Cause: "cause", Handler: "charge"}, "4 2 1"},
		"topic":          {stores.Filter{Topic: "refunds"}, "3"},
		"error":          {stores.Filter{ErrorContains: "0%_'"}, "4"},
		"error, bytes":   {stores.Filter{ErrorContains: "\xb6\\"}, "4"},
		"error, case":    {stores.Filter{ErrorContains: "It fails"}, ""},
		"no pattern":     {stores.Filter{ErrorContains: "%"}, "4"},
		"numbers":        {stores.Filter{Numbers: []int64{1, 3, 99}}, "3 1"},
		"id":             {stores.Filter{ID: []byte("5")}, "5"},
		"since":          {stores.Filter{Since: time.Now().Add(-time.Minute)}, "5 4 3 2"},
		"until":          {stores.Filter{Until: time.Now().Add(-time.Minute)}, "1"},
		"several":        {stores.Filter{Service: "billing", Class: stores.ClassTransient, Topic: "orders"}, "5 4 1"},
	} {
		messages, err := s.Messages(t.Context(), stores.MessageQuery{Filter: c.filter, Limit: 100})
		require.NoError(t, err, name)
		require.Equal(t, c.want, messageIDs(messages), name)
		n, highest, err := s.Matching(t.Context(), c.filter, 100)
		require.NoError(t, err, name)
		require.Len(t, messages, n, name)
		if n > 0 {
			require.Equal(t, messages[0].Number, highest, name)
		}
	}
	n, highest, err := s.Matching(t.Context(), stores.Filter{}, 2)
	require.NoError(t, err)
	require.Equal(t, []int{2, 5}, []int{n, int(highest)})

	// Pages.
	var all []stores.Message
	for before := int64(0); ; {
		page, err := s.Messages(t.Context(), stores.MessageQuery{Before: before, Limit: 2})
		require.NoError(t, err)
		all = append(all, page...)
		if len(page) < 2 {
			break
		}
		before = page[1].Number
	}
	require.Equal(t, "5 4 3 2 1", messageIDs(all))
	for _, m := range all {
		require.Nil(t, m.Payload)
		require.Equal(t, 1, m.PayloadBytes)
		require.Equal(t, fingerprintOf(string(m.Key.ID)), m.Fingerprint)
	}
	require.Equal(t, stores.Consumer{Service: "billing", Handler: "other"}, all[0].Key.Consumer)
}

func TestFind(t *testing.T) {
	o, s := operated(t)
	m, err := s.Find(t.Context(), claimOf("completed").Key)
	require.NoError(t, err)
	require.Equal(t, stores.StatusCompleted, m.Status)
	require.Equal(t, fingerprintOf("completed"), m.Fingerprint)
	require.WithinDuration(t, time.Now(), m.CompletedAt, 10*time.Second)
	m, err = s.Message(t.Context(), o.message("1").Number)
	require.NoError(t, err)
	found := o.message("1")
	found.Age, m.Age, found.DueIn, m.DueIn = 0, 0, 0, 0
	require.Equal(t, found, m)

	_, err = s.Message(t.Context(), 99)
	require.ErrorIs(t, err, stores.ErrNotFound)
	for _, key := range []stores.Key{claimOf("absent").Key, {Consumer: stores.Consumer{Service: "a", Handler: "b"}, ID: []byte("1")}, {}} {
		_, err = s.Find(t.Context(), key)
		require.ErrorIs(t, err, stores.ErrNotFound)
	}
}

func TestCausesAndCounts(t *testing.T) {
	o, s := operated(t)
	causes, err := s.Causes(t.Context(), stores.Filter{}, 10)
	require.NoError(t, err)
	require.Len(t, causes, 3)
	g := causes[0]
	require.Equal(t, billing, g.Consumer)
	require.Equal(t, "cause", g.ID)
	require.Equal(t, "it fails", g.Error)
	require.Equal(t, []int{3, 1}, []int{g.Pending, g.Failed})
	require.WithinDuration(t, time.Now(), g.LastAt, 10*time.Second)
	causes, err = s.Causes(t.Context(), stores.Filter{Class: stores.ClassPermanent}, 1)
	require.NoError(t, err)
	require.Equal(t, stores.ClassPermanent, causes[0].Class)
	require.Equal(t, []int{0, 1}, []int{causes[0].Pending, causes[0].Failed})

	require.NoError(t, o.Quarantine(t.Context(), stores.Quarantined{Consumer: billing, Reason: stores.ReasonNoKey}))
	counts, err := s.Counts(t.Context(), 3)
	require.NoError(t, err)
	got := ""
	for _, c := range counts {
		require.WithinDuration(t, time.Now(), c.Oldest, 10*time.Second)
		got += fmt.Sprint(c.Consumer.Handler, " ", c.Status, " ", c.N, " ", c.More, "\n")
	}
	require.Equal(t, "charge pending 3 true\ncharge failed 1 false\ncharge quarantined 1 false\nother pending 1 false\n", got)
}

func TestChange(t *testing.T) {
	o, s := operated(t)
	retry := stores.Change{Verb: stores.VerbRetry, Actor: "ann", Reason: "fixed \x00", Limit: 4}
	_, _, err := s.Matching(t.Context(), retry.Filter, 100)
	require.NoError(t, err)
	changed, err := s.Change(t.Context(), retry)
	require.NoError(t, err)
	require.Equal(t, stores.Changed{Changed: 4, Next: 4}, changed)
	retry.After = changed.Next
	changed, err = s.Change(t.Context(), retry)
	require.NoError(t, err)
	require.Equal(t, stores.Changed{Changed: 2, Redelivered: 1, Next: 6, Done: true}, changed)
	m := o.message("2")
	require.Equal(t, stores.StatusPending, m.Status)
	require.Equal(t, []int{0, 0, 1}, []int{m.Attempts, m.Uncounted, m.Redrives})
	require.LessOrEqual(t, m.DueIn, time.Duration(0))
	require.Equal(t, stores.Parked, o.verdict(claimOf("2")).Outcome)
	require.Equal(t, stores.Claimable, o.answer(claimOf("6"), true).Outcome)

	// Once more changes nothing.
	retry.After = 0
	o.unchanged(func() {
		changed, err = s.Change(t.Context(), retry)
		require.NoError(t, err)
		require.Equal(t, stores.Changed{Done: true}, changed)
	})
	audit, err := s.Audit(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Len(t, audit, 6)
	require.WithinDuration(t, time.Now(), audit[4].At, 10*time.Second)
	audit[4].At = time.Time{}
	require.Equal(t, stores.AuditEntry{
		ID: 2, Verb: stores.VerbRetry, Actor: "ann", Reason: "fixed \uFFFD", Consumer: billing, MessageID: []byte("2"),
		Number: 2, Before: "failed", After: "pending",
	}, audit[4])
	audit, err = s.Audit(t.Context(), 3, 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, audit[0].ID)

	// Reserved messages are somebody's.
	require.Equal(t, "1", idsOf(o.due(1, time.Hour)))
	discard := stores.Change{Verb: stores.VerbDiscard, Limit: 100, UpTo: 3}
	changed, err = s.Change(t.Context(), discard)
	require.NoError(t, err)
	require.Equal(t, stores.Changed{Changed: 2, Reserved: 1, Next: 3, Done: true}, changed)
	require.Equal(t, stores.Final, o.verdict(claimOf("3")).Outcome)
	require.Equal(t, stores.StatusDiscarded, o.message("3").Status)
	require.True(t, o.message("3").DueAt.IsZero())
	changed, err = s.Change(t.Context(), stores.Change{Verb: stores.VerbRetry, Limit: 9, Filter: stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}})
	require.NoError(t, err)
	require.Equal(t, 2, changed.Changed)
	require.Equal(t, stores.StatusPending, o.message("3").Status)

	for _, wrong := range []stores.Change{{Verb: stores.VerbRelease, Limit: 1}, {Verb: "drop", Limit: 1}, {Verb: stores.VerbRetry}} {
		_, err := s.Change(t.Context(), wrong)
		require.Error(t, err)
	}
}

// Two operators at once change each message once.
func TestTwoOperators(t *testing.T) {
	o := open(t)
	const messages = 100
	for i := range messages {
		f := failureOf(fmt.Sprint(i))
		f.Status = stores.StatusFailed
		o.record(f)
	}
	stop := make(chan struct{})
	var workers, operators sync.WaitGroup
	workers.Go(func() { // beside a worker, who takes what is due
		for {
			select {
			case <-stop:
				return
			default:
			}
			due, err := o.Due(t.Context(), stores.DueQuery{Consumer: billing, Limit: 5, Reserve: time.Hour})
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range due {
				c := stores.Claim{Key: r.Key, Fingerprint: r.Fingerprint, Take: r.State.Version}
				a, verdict, err := o.Begin(t.Context(), c)
				if err == nil && verdict.Outcome == stores.Claimed {
					err = a.Commit(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	var mu sync.Mutex
	total := 0
	for range 2 {
		s := openAt(t, o.path)
		operators.Go(func() {
			c := stores.Change{Verb: stores.VerbRetry, Limit: 7}
			for {
				changed, err := s.Change(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				total += changed.Changed
				mu.Unlock()
				if changed.Done {
					return
				}
				c.After = changed.Next
			}
		})
	}
	operators.Wait()
	close(stop)
	workers.Wait()
	require.Equal(t, messages, total)
	var audits, redrives int
	require.NoError(t, o.DB().QueryRow("SELECT count(*), (SELECT coalesce(max(redrives), 1) FROM millpond_failure) FROM millpond_audit").Scan(&audits, &redrives))
	require.Equal(t, []int{messages, 1}, []int{audits, redrives})
}

func TestDecide(t *testing.T) {
	o := open(t)
	s := o.Store
	base := stores.Quarantined{
		Consumer: billing, ID: []byte("a"), Reason: stores.ReasonConflict, Detail: "because", Fingerprint: fingerprintOf("b"), Existing: fingerprintOf("a"),
		Topic: "orders", Coordinates: "0/7", UUID: "u\xff", Metadata: map[string]string{"k": "\xff"}, Payload: []byte("\x00b"), Codec: "aes",
	}
	for _, change := range []func(*stores.Quarantined){
		func(*stores.Quarantined) {},
		func(q *stores.Quarantined) {
			q.OneWay, q.Reason, q.Fingerprint = true, stores.ReasonTooLarge, stores.Fingerprint{}
		},
		func(q *stores.Quarantined) { q.ID, q.Reason = nil, stores.ReasonNoKey },
	} {
		q := base
		change(&q)
		require.NoError(t, o.Quarantine(t.Context(), q))
	}
	held, err := s.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 2})
	require.NoError(t, err)
	require.Len(t, held, 2)
	held, err = s.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 2, Before: held[1].RowID, Service: billing.Service, Reason: stores.ReasonConflict})
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Equal(t, 2, held[0].PayloadBytes)
	require.Nil(t, held[0].Payload)
	row, err := s.QuarantinedRow(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, row.Unreadable)
	require.Equal(t, base, row.Quarantined)
	require.Equal(t, stores.QuarantineHeld, row.Status)
	_, err = s.QuarantinedRow(t.Context(), 99)
	require.ErrorIs(t, err, stores.ErrNotFound)

	decide := func(verb stores.Verb, row int64) error {
		return s.Decide(t.Context(), stores.Decision{Verb: verb, RowID: row, Actor: "ann", Reason: "seen"})
	}
	require.NoError(t, decide(stores.VerbRelease, 1))
	o.unchanged(func() {
		require.ErrorIs(t, decide(stores.VerbRelease, 1), stores.ErrChanged)
		require.ErrorIs(t, decide(stores.VerbReject, 1), stores.ErrChanged)
		require.ErrorIs(t, decide(stores.VerbRelease, 2), stores.ErrNotKept)
		require.ErrorIs(t, decide(stores.VerbRelease, 99), stores.ErrNotFound)
		require.ErrorIs(t, decide(stores.VerbReject, 99), stores.ErrNotFound)
		require.Error(t, decide(stores.VerbRetry, 2))
		require.NoError(t, decide(stores.VerbReject, 3))
	})
	due := o.due(10, time.Hour)
	require.Len(t, due, 1)
	require.Equal(t, stores.ReleasedID(1), due[0].Key.ID)
	require.Equal(t, base.Fingerprint, due[0].Fingerprint)
	require.Equal(t, stores.Content{State: stores.ContentKept, Codec: "aes", UUID: base.UUID, Metadata: base.Metadata, Payload: base.Payload}, due[0].Content)
	require.Equal(t, "conflict: because", o.message(string(due[0].Key.ID)).Error)
	require.EqualValues(t, "released", due[0].State.Class)
	take := stores.Claim{Key: due[0].Key, Fingerprint: due[0].Fingerprint, Take: due[0].State.Version}
	require.NoError(t, o.begin(take).Commit(t.Context()))

	require.NoError(t, o.Quarantine(t.Context(), base))
	row, err = s.QuarantinedRow(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 2, row.Seen)
	require.Equal(t, stores.QuarantineReleased, row.Status)
	require.False(t, row.DecidedAt.IsZero())
	rejected, err := s.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 2, Status: stores.QuarantineRejected})
	require.NoError(t, err)
	require.Len(t, rejected, 1)
	audit, err := s.Audit(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, audit, 2)
	require.Equal(t, []string{"reject", "held", "rejected", "ann", "seen"}, []string{string(audit[0].Verb), audit[0].Before, audit[0].After, audit[0].Actor, audit[0].Reason})
	require.Nil(t, audit[0].MessageID)
	require.Equal(t, []byte("a"), audit[1].MessageID)
}

// An operator's process checks the schema by itself.
func TestInspectorChecksTheSchema(t *testing.T) {
	s, err := New(t.Context(), t.TempDir()+"/a.db", Config{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	o := open(t)
	_, err = o.DB().Exec("INSERT INTO millpond_schema (version, compatible, name) VALUES (99, 99, 'newer')")
	require.NoError(t, err)
	_, err = o.Counts(t.Context(), 1)
	require.ErrorIs(t, err, stores.ErrSchemaNewer)

	o, s = operated(t)
	_, err = s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	require.NoError(t, err)
	_, err = o.DB().Exec("DROP TABLE millpond_failure")
	require.NoError(t, err)
	_, err = s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	require.NoError(t, s.Close())
	_, err = s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	require.ErrorIs(t, err, stores.ErrClosed)
}
