package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// scripted is a store for what real ones do not do on demand: many messages, and
// trouble in the middle. It has so many messages, numbered from 1 on.
type scripted struct {
	stores.Inspector
	stores.Migrator
	messages int
	changes  []stores.Change
	onChange func(ctx context.Context, c stores.Change) (stores.Changed, error) // nil: all goes well
	onCounts func(ctx context.Context) ([]stores.Count, error)
}

func (s *scripted) Close() error { return nil }

func (s *scripted) Matching(_ context.Context, _ stores.Filter, limit int) (int, int64, error) {
	return min(limit, s.messages), int64(s.messages), nil
}

func (s *scripted) Counts(ctx context.Context, limit int) ([]stores.Count, error) {
	return s.onCounts(ctx)
}

func (s *scripted) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	s.changes = append(s.changes, c)
	if s.onChange != nil {
		return s.onChange(ctx, c)
	}
	return s.change(c), nil
}

func (s *scripted) change(c stores.Change) stores.Changed {
	last := min(c.After+int64(c.Limit), c.UpTo)
	return stores.Changed{Changed: int(last - c.After), Next: last, Done: last == c.UpTo}
}

func newScripted(t *testing.T, messages int) (*session, *scripted) {
	t.Helper()
	s := &scripted{messages: messages}
	n := newSession(t)
	n.vars[storeVariable] = "scripted://app:c4nary@host/db"
	n.open = func(context.Context, string) (store, error) { return s, nil }
	return n, s
}

func TestAMillionMessagesInBatches(t *testing.T) {
	n, s := newScripted(t, 1_000_000)
	n.terminal("y\n")
	require.Equal(t, "1,000,000 messages are due now, and wait for a retry worker\n", n.ok("msg", "retry", "--all", "--reason", "fixed", "--actor", "grace"))
	require.Contains(t, n.errB.String(), "Retry 10,000+ messages?")
	require.Contains(t, n.errB.String(), "changed 999,500 of 10,000+")
	require.Len(t, s.changes, 2000)
	for i, c := range s.changes {
		require.Equal(t, stores.Change{
			Verb: stores.VerbRetry, Actor: "grace", Reason: "fixed", After: int64(i * 500), UpTo: 1_000_000, Limit: 500,
		}, c)
	}
}

func TestTheBoundIsNoMoreThanItIs(t *testing.T) {
	n, _ := newScripted(t, 10_000)
	n.terminal("")
	n.run(exitError, "msg", "retry", "--all")
	require.Contains(t, n.errB.String(), "Retry 10,000 messages?")
}

func TestInterruptedBetweenBatches(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		n, s := newScripted(t, 5000)
		ctx, interrupt := context.WithCancel(t.Context())
		n.ctx = ctx
		s.onChange = func(ctx context.Context, c stores.Change) (stores.Changed, error) {
			if c.After == 1000 {
				interrupt()
			}
			return s.change(c), ctx.Err() // the batch that is under way is not broken off
		}
		out := n.run(exitPartly, "msg", "discard", "--all", "--yes", "-o", output)
		require.Len(t, s.changes, 3)
		require.Contains(t, n.errB.String(), "stopped after 1,500 messages: interrupted; the same command goes on from there")
		if output == "json" {
			require.Contains(t, out, `"changed": 1500`)
			require.Contains(t, out, `"complete": false`)
			require.Contains(t, out, `"stopped_by": "interrupted"`)
		} else {
			require.Equal(t, "discarded 1,500 messages\n", out)
		}
	}
}

func TestInterruptedWhileAsked(t *testing.T) {
	n, s := newScripted(t, 5)
	ctx, interrupt := context.WithCancel(t.Context())
	n.ctx = ctx
	n.terminal("")
	n.in = readerFunc(func([]byte) (int, error) {
		interrupt()
		<-t.Context().Done()
		return 0, errors.New("the end")
	})
	n.run(exitError, "msg", "retry", "--all")
	require.Empty(t, s.changes)
	require.Contains(t, n.errB.String(), "nothing was changed")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestTroubleInTheMiddle(t *testing.T) {
	trouble := fmt.Errorf("postgres: %w: connection to scripted://app:c4nary@host refused", stores.ErrUnavailable)
	n, s := newScripted(t, 5000)
	s.onChange = func(_ context.Context, c stores.Change) (stores.Changed, error) {
		if c.After > 0 {
			return stores.Changed{}, trouble
		}
		return s.change(c), nil
	}
	out := n.run(exitPartly, "msg", "retry", "--all", "--yes", "-o", "json")
	require.Contains(t, n.errB.String(), "stopped after 500 messages")
	require.Contains(t, n.errB.String(), "store unavailable")
	require.NotContains(t, out+n.errB.String(), "c4nary")

	s.onChange = func(context.Context, stores.Change) (stores.Changed, error) { return stores.Changed{}, trouble }
	n.run(exitError, "msg", "retry", "--all", "--yes")

	s.onChange = func(_ context.Context, c stores.Change) (stores.Changed, error) {
		return stores.Changed{Next: c.After}, nil
	}
	n.run(exitError, "msg", "retry", "--all", "--yes")
	require.Contains(t, n.errB.String(), "millpond: the store makes no progress after message 0\n")
}

func TestBusyAndFasterOperators(t *testing.T) {
	n, s := newScripted(t, 10)
	s.onChange = func(context.Context, stores.Change) (stores.Changed, error) {
		return stores.Changed{Busy: 2, Changed: 8, Redelivered: 3, Done: true}, nil
	}
	require.Equal(t, "5 messages are due now, and wait for a retry worker\n"+
		"3 messages wait for the broker to deliver them again, because no content is kept\n", n.run(exitPartly, "msg", "retry", "--all", "--yes"))
	s.onChange = func(context.Context, stores.Change) (stores.Changed, error) { return stores.Changed{Done: true}, nil }
	require.Empty(t, n.run(exitNothing, "msg", "retry", "--all", "--yes"))
	require.Equal(t, "millpond: nothing was changed: what matches is due already, or another operator was faster\n", n.errB.String())
	require.Empty(t, n.run(exitNothing, "msg", "discard", "--all", "--yes"))
	require.Equal(t, "millpond: nothing was changed: what matches is discarded already, or another operator was faster\n", n.errB.String())
}

func TestTimeout(t *testing.T) {
	n, s := newScripted(t, 10)
	s.onCounts = func(ctx context.Context) ([]stores.Count, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("scripted: %w", ctx.Err())
	}
	n.run(exitError, "stats", "--timeout", "1ms")
	require.Contains(t, n.errB.String(), "no answer from the store within 1ms, which --timeout changes")
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	n.ctx = ctx
	n.run(exitError, "stats")
	require.Equal(t, "millpond: interrupted\n", n.errB.String())
}

func TestCountsAndTimesForPeopleAndPrograms(t *testing.T) {
	n, s := newScripted(t, 0)
	n.now = func() time.Time { return noon }
	s.onCounts = func(context.Context) ([]stores.Count, error) {
		return []stores.Count{
			{Consumer: charge, Status: "failed", N: 10_000, More: true, Oldest: noon.Add(-3 * time.Minute)},
			{Consumer: mail, Status: "quarantined", N: 1_234, Oldest: noon.Add(-49 * time.Hour)},
		}, nil
	}
	require.Equal(t, strings.TrimPrefix(`
CONSUMER        STATUS       COUNT    OLDEST
billing/charge  failed       10,000+  3 minutes ago
billing/mail    quarantined  1,234    2 days ago
`, "\n"), n.ok("stats"))
	var lines []string
	for line := range strings.Lines(n.ok("stats", "-o", "jsonl")) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	require.Equal(t, []string{
		`{"consumer":"billing/charge","service":"billing","handler":"charge","status":"failed","count":10000,"more":true,"oldest_at":"2026-03-01T11:57:00Z"}`,
		`{"consumer":"billing/mail","service":"billing","handler":"mail","status":"quarantined","count":1234,"more":false,"oldest_at":"2026-02-27T11:00:00Z"}`,
	}, lines)
	s.onCounts = func(context.Context) ([]stores.Count, error) { return nil, nil }
	require.Equal(t, "[]\n", n.ok("stats", "-o", "json"))
	require.Empty(t, n.ok("stats"))
	require.Equal(t, "no message is pending, failed, discarded or held in quarantine\n", n.errB.String())
}
