package sqlite

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func (o opened) due(limit int, reserve time.Duration) []stores.Retry {
	o.t.Helper()
	due, err := o.Due(o.t.Context(), stores.DueQuery{Consumer: billing, Limit: limit, Reserve: reserve})
	require.NoError(o.t, err)
	return due
}

func idsOf(due []stores.Retry) string {
	ids := make([]string, len(due))
	for i, r := range due {
		ids[i] = string(r.Key.ID)
	}
	return strings.Join(ids, " ")
}

func TestDue(t *testing.T) {
	o := open(t)
	f := failureOf("0")
	f.TraceParent, _ = stores.ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	o.record(f)
	for i := 1; i < 5; i++ {
		o.record(failureOf(fmt.Sprint(i)))
	}
	later := failureOf("later")
	later.DueIn = time.Hour
	o.record(later)
	o.record(redelivered("redelivered", 0))
	failed := failureOf("failed")
	failed.Status = stores.StatusFailed
	o.record(failed)
	_, err := o.DB().Exec("UPDATE millpond_failure SET due_at = due_at - 1000000 * (10 - number) WHERE number <= 5")
	require.NoError(t, err)

	due := o.due(2, time.Hour)
	require.Equal(t, "0 1", idsOf(due))
	first := due[0]
	require.Equal(t, stores.Key{Consumer: billing, ID: []byte("0")}, first.Key)
	require.Equal(t, f.Fingerprint, first.Fingerprint)
	require.Equal(t, f.TraceParent, first.TraceParent)
	require.Equal(t, *f.Content, first.Content)
	require.Equal(t, "orders 0/1", first.Topic+" "+first.Coordinates)
	require.False(t, first.Suspect)
	require.Equal(t, o.message("0").Version, first.State.Version)
	require.Greater(t, first.State.DueIn, time.Minute)

	require.Equal(t, "2 3 4", idsOf(o.due(100, time.Hour)))
	o.unchanged(func() { require.Empty(t, o.due(100, time.Hour)) })

	// Released ones come again, changed ones stay.
	changed := failureOf("1")
	changed.Version, changed.DueIn = due[1].State.Version, time.Hour
	o.record(changed)
	require.NoError(t, o.Release(t.Context(), due))
	o.unchanged(func() { require.NoError(t, o.Release(t.Context(), due)) })
	again := o.due(100, time.Millisecond)
	require.Equal(t, "0", idsOf(again))
	require.False(t, again[0].Suspect)

	// What nobody has released or recorded in time is suspect.
	require.Eventually(t, func() bool {
		again = o.due(100, time.Hour)
		return len(again) > 0
	}, 5*time.Second, time.Millisecond)
	require.True(t, again[0].Suspect)

	_, err = o.Due(t.Context(), stores.DueQuery{Consumer: billing, Limit: 0, Reserve: time.Second})
	require.Error(t, err)
	_, err = o.Due(t.Context(), stores.DueQuery{Consumer: stores.Consumer{Service: "a", Handler: "b"}, Limit: 1, Reserve: time.Second})
	require.ErrorIs(t, err, stores.ErrNotRegistered)
}

// However many ask, each row goes to one.
func TestDueOnce(t *testing.T) {
	o := open(t)
	other := openAt(t, o.path)
	const messages = 200
	for i := range messages {
		o.record(failureOf(fmt.Sprint(i)))
	}
	var mu sync.Mutex
	got := make(map[string]int)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := []opened{o, other}[i%2]
			for {
				due, err := s.Due(t.Context(), stores.DueQuery{Consumer: billing, Limit: 7, Reserve: time.Hour})
				if err != nil {
					t.Error(err)
				}
				if len(due) == 0 {
					return
				}
				mu.Lock()
				for _, r := range due {
					got[string(r.Key.ID)]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, got, messages)
	for id, n := range got {
		require.Equal(t, 1, n, id)
	}
}

// Only the first of an order key is due; the others do not keep those behind them.
func TestDueInOrder(t *testing.T) {
	o := open(t)
	for i := range 50 {
		f := failureOf(fmt.Sprintf("x%02d", i))
		f.OrderKey = []byte("x")
		o.record(f)
	}
	o.record(failureOf("free"))
	_, err := o.DB().Exec("UPDATE millpond_failure SET due_at = due_at - 1000000 * (100 - number)")
	require.NoError(t, err)
	require.Equal(t, "x00", idsOf(o.due(1, time.Hour)))
	require.Equal(t, "free", idsOf(o.due(10, time.Hour)), "behind more than one batch of rows that wait")
	require.Greater(t, o.message("x01").DueIn, time.Minute, "it waits for the reservation")
	o.unchanged(func() { require.Empty(t, o.due(10, time.Hour)) })

	take := claimOf("x00")
	take.Take = o.message("x00").Version
	require.NoError(t, o.begin(take).Commit(t.Context()))
	require.Equal(t, "x01", idsOf(o.due(10, time.Hour)))
}

func TestUnreadableMetadata(t *testing.T) {
	o := open(t)
	for _, id := range []string{"a", "b", "c"} {
		o.record(failureOf(id))
	}
	_, err := o.DB().Exec("UPDATE millpond_failure SET metadata = x'00' WHERE message_id = x'62'")
	require.NoError(t, err)
	due := o.due(10, time.Hour)
	require.Equal(t, "a b c", idsOf(due))
	require.NoError(t, due[0].Err)
	require.Error(t, due[1].Err)
	require.Equal(t, []byte("b"), due[1].Content.Payload)
	m, err := o.Find(t.Context(), due[1].Key)
	require.NoError(t, err)
	require.Error(t, m.Unreadable)
}

func TestBacklog(t *testing.T) {
	o := open(t)
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: stores.Consumer{Service: "idle", Handler: "idle"}}))
	other := stores.Consumer{Service: "other", Handler: "handler"}
	require.NoError(t, openAt(t, o.path).Register(t.Context(), stores.Registration{Consumer: other}))
	for i := range 5 {
		o.record(failureOf(fmt.Sprint(i)))
	}
	later := failureOf("later")
	later.DueIn = time.Hour
	o.record(later)
	_, err := o.DB().Exec(`UPDATE millpond_failure SET due_at = due_at - 60000000 WHERE number = 3;
		INSERT INTO millpond_failure (consumer, message_id, status, placement, content, attempts, uncounted, due_at, class, cause, error, topic, coordinates)
		SELECT id, x'00', 3, 1, 1, 0, 0, 0, '', '', '', '', '' FROM millpond_consumer WHERE service = 'other'`)
	require.NoError(t, err)
	backlog, err := o.Backlog(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, backlog, 2)
	require.Equal(t, billing, backlog[0].Consumer)
	require.Equal(t, 3, backlog[0].Due)
	require.InDelta(t, time.Minute, backlog[0].Oldest, float64(10*time.Second))
	require.Equal(t, other, backlog[1].Consumer)
	require.Equal(t, 1, backlog[1].Due)
}

// watched is a database that plans every statement before it sends it.
type watched struct {
	database
	plans map[string]string // by the texts
}

func (w watched) Send(ctx context.Context, s sqlstore.Statement) (int64, error) {
	return w.through(ctx, w.database, s)
}

func (w watched) Write(ctx context.Context, f func(sqlstore.Sender) error) error {
	return w.database.Write(ctx, func(tx sqlstore.Sender) error { return f(watchedTx{w, tx}) })
}

type watchedTx struct {
	watched
	tx sqlstore.Sender
}

func (w watchedTx) Send(ctx context.Context, s sqlstore.Statement) (int64, error) {
	return w.through(ctx, w.tx, s)
}

func (w watched) through(ctx context.Context, to sqlstore.Sender, s sqlstore.Statement) (int64, error) {
	var plan strings.Builder
	_, err := to.Send(ctx, sqlstore.Statement{Text: "EXPLAIN QUERY PLAN " + s.Text, Args: s.Args, Read: func(rows sqlstore.Rows) error {
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				return err
			}
			plan.WriteString(detail + "\n")
		}
		return rows.Err()
	}})
	if err != nil {
		return 0, err
	}
	w.plans[s.Text] = plan.String()
	return to.Send(ctx, s)
}

// Rows that are not concerned cost nothing.
func TestPlans(t *testing.T) {
	o := open(t)
	w := watched{database{o.Store}, make(map[string]string)}
	o.tables = sqlstore.New("sqlite", w, o.Migrations())
	o.contract = o.tables.Store()
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: billing}))
	clear(w.plans)
	for _, id := range []string{"a", "b", "c"} {
		f := failureOf(id)
		f.OrderKey = []byte("k")
		o.record(f)
	}
	due, err := o.Due(t.Context(), stores.DueQuery{Consumer: billing, Limit: 3, Reserve: time.Minute})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.NoError(t, o.Release(t.Context(), due))
	_, err = o.Backlog(t.Context(), 10)
	require.NoError(t, err)
	for _, verb := range []stores.Verb{stores.VerbDiscard, stores.VerbRetry} {
		changed, err := o.Change(t.Context(), stores.Change{Verb: verb, Limit: 3, Filter: stores.Filter{Numbers: []int64{1, 2}, Status: []stores.Status{stores.StatusPending, stores.StatusDiscarded}}})
		require.NoError(t, err)
		require.Equal(t, 2, changed.Changed)
	}
	require.Greater(t, len(w.plans), 15)
	for text, plan := range w.plans {
		for _, table := range []string{"i", "f", "e", "h", "b", "millpond_inbox", "millpond_failure"} {
			require.NotContains(t, plan, "SCAN "+table+"\n", text)
		}
		if strings.Contains(text, "ORDER BY f.due_at LIMIT") {
			require.NotContains(t, plan, "TEMP", text)
		}
	}
}

// A claim that only queues for the writer keeps nobody from its message: what is given
// back is given back, and what is recorded waits until the claim is decided.
func TestBehindAQueuedClaim(t *testing.T) {
	o := open(t)
	f := failureOf("a")
	f.Version = o.record(f)
	number, err := o.tables.Consumer(billing)
	require.NoError(t, err)
	queued := flight{consumer: number, id: "a"}
	require.True(t, o.flights.takeOff(queued))
	require.Equal(t, stores.InFlight, o.verdict(claimOf("a")).Outcome)
	reserved := o.due(10, time.Hour)
	require.Equal(t, "a", idsOf(reserved))
	require.NoError(t, o.Release(t.Context(), reserved))
	f.Version = o.message("a").Version
	require.NotEqual(t, reserved[0].State.Version, f.Version)

	o.unchanged(func() {
		_, err := o.Record(within(t, 20*time.Millisecond), f)
		require.ErrorIs(t, err, stores.ErrUnavailable)
	})
	recorded := make(chan error)
	record := func() {
		_, err := o.Record(context.Background(), f)
		recorded <- err
	}
	go record()
	o.flights.land(queued)
	require.NoError(t, <-recorded)

	require.True(t, o.flights.takeOff(queued))
	go record()
	o.flights.opened(queued)
	require.ErrorIs(t, <-recorded, stores.ErrChanged)
	o.flights.land(queued)
}
