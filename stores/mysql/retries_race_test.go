package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// Deliveries, retry workers of several processes and operators meet on a few messages.
// Each is done once, and nobody is told of a deadlock.
func TestRetryWorkersDeliveriesAndOperatorsMeet(t *testing.T) {
	t.Parallel()
	lasting := 2 * time.Second
	if rotation.Soak() {
		lasting = time.Minute
	}
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		var processes []*mysql.Store
		for range 2 {
			processes = append(processes, c.another(t, nil))
		}
		borrowed, err := mysql.New(openDB(t, mustParse(t, c.proxy.URL()), nil), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, borrowed.Register(t.Context(), stores.Registration{Consumer: billing}))
		processes = append(processes, borrowed)

		m := meeting{t: t, until: time.Now().Add(lasting), orders: []byte("abc")}
		var group sync.WaitGroup
		for _, s := range processes {
			for range 2 {
				group.Go(func() { m.deliver(s) })
				group.Go(func() { m.retry(s) })
			}
			group.Go(func() { m.operate(s) })
		}
		group.Wait()
		var effects, keys, half, apart int
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT label) FROM effect").Scan(&effects, &keys))
		assert.Equal(t, keys, effects, "messages that were done")
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_inbox WHERE status = 1 OR (status = 2) <> EXISTS (SELECT 1 FROM effect WHERE label = CONVERT(message_id USING utf8mb4))").Scan(&half))
		assert.Zero(t, half, "messages that are completed and not done, or done and not completed")
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_inbox i LEFT JOIN millpond_failure f ON f.consumer = i.consumer AND f.message_id = i.message_id WHERE (i.status > 2) <> (f.number IS NOT NULL) OR f.status <> i.status").Scan(&apart))
		assert.Zero(t, apart, "messages whose two rows differ")
		t.Logf("%d messages were done", effects)
	})
}

// meeting is what they meet for.
type meeting struct {
	t      *testing.T
	until  time.Time
	orders []byte
}

func (m *meeting) going() bool { return time.Now().Before(m.until) && !m.t.Failed() }

// told fails the test, but for what is said of somebody else who was faster.
func (m *meeting) told(what string, err error) {
	if err != nil && !errors.Is(err, stores.ErrChanged) && !errors.Is(err, stores.ErrNotFound) {
		m.t.Errorf("%s: %v", what, err)
	}
}

func (m *meeting) deliver(s *mysql.Store) {
	for m.going() {
		claim := claimOf(fmt.Sprint("message ", time.Until(m.until)/(200*time.Millisecond), " ", mathrand.N(8)))
		if n := mathrand.N(5); n < len(m.orders) {
			claim.OrderKey = m.orders[n : n+1]
		}
		m.run(s, claim)
	}
}

func (m *meeting) retry(s *mysql.Store) {
	for m.going() {
		due, err := s.Due(m.t.Context(), stores.DueQuery{Consumer: billing, Limit: 1 + mathrand.N(5), Reserve: time.Duration(1+mathrand.N(200)) * time.Millisecond})
		m.told("Due", err)
		for _, r := range due {
			if mathrand.N(4) == 0 {
				m.told("Release", s.Release(m.t.Context(), []stores.Retry{r}))
				continue
			}
			m.run(s, stores.Claim{Key: r.Key, Fingerprint: r.Fingerprint, Take: r.State.Version, OrderKey: r.OrderKey, Bound: 40 * time.Second})
		}
	}
}

func (m *meeting) operate(s *mysql.Store) {
	for m.going() {
		verb := stores.VerbRetry
		if mathrand.N(5) == 0 {
			verb = stores.VerbDiscard
		}
		_, err := s.Change(m.t.Context(), stores.Change{Verb: verb, Actor: "somebody", Reason: "why not", Limit: 1 + mathrand.N(10)})
		m.told("Change", err)
		<-time.After(20 * time.Millisecond)
	}
}

// run handles a message that can be claimed; every second time it fails.
func (m *meeting) run(s *mysql.Store, c stores.Claim) {
	ctx := context.WithoutCancel(m.t.Context())
	a, v, err := s.Begin(ctx, c)
	m.told("Begin", err)
	if a == nil {
		return
	}
	m.told("the handler", exec(ctx, a, fmt.Sprintf("INSERT INTO effect VALUES ('%s')", c.Key.ID)))
	if mathrand.N(2) == 0 {
		m.told("Commit", a.Commit(ctx))
		return
	}
	m.told("Rollback", a.Rollback(ctx))
	f := stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, Version: v.Failure.Version, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Attempts: 1, DueIn: mathrand.N(20 * time.Millisecond), Content: &stores.Content{State: stores.ContentKept}, OrderKey: c.OrderKey,
	}
	if c.Take != 0 {
		f.Version = c.Take
	}
	if mathrand.N(5) == 0 {
		f.Status = stores.StatusFailed
	}
	_, err = s.Record(ctx, f)
	m.told("Record", err)
}
