package crash

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// The deadlines of a delivery in these tests. Their sum is the bound after which the
// server ends the transaction of a process that stands still.
const (
	stoppedHandler = 600 * time.Millisecond
	stoppedCommit  = 400 * time.Millisecond
	stoppedBound   = stoppedHandler + stoppedCommit
)

// stop runs two workers, one of which is stopped at a point for longer than the bound.
// Each has one message at a time, and after a moment another worker gets it too.
func stop(t *testing.T, open opener, point, variant string, pause time.Duration) (*result, stopped) {
	t.Helper()
	seed := seedOf(t)
	const attempts = 10
	for range attempts {
		tr := &trial{
			system: open(t),
			orders: workload(seed, 12, mix{share: map[conduct]int{slow: 30}}),
			setup:  setup{HandlerTimeout: stoppedHandler, CommitTimeout: stoppedCommit, HoldLimit: time.Second, Variant: variant},
			Config: fleet.Config{
				Seed: seed, Workers: 2, InFlight: 1, Visibility: 100 * time.Millisecond,
				Kills: []fleet.Kill{{Kind: fleet.SIGSTOP, Point: point, Pause: pause, Hit: 3}},
			},
		}
		r := tr.run(t)
		t.Log(r.summary())
		if r.Kills[fleet.SIGSTOP] != 1 {
			t.Fatalf("nobody was stopped: the point was not reached")
		}
		if s, apt := r.stopped(point); apt {
			return r, s
		}
		r.must(t)
	}
	t.Fatalf("%d times the process went on before the signal had stopped it, or had been overtaken by another one", attempts)
	return nil, stopped{}
}

// stopped is a process that was stopped, and what it had in its hands.
type stopped struct {
	at    time.Time
	pid   int
	key   key
	body  string
	freed time.Duration // after the stop, until another process had completed the message; 0: never
}

// stopped finds out who was stopped. It is not apt if another process had settled the
// message before, or if the process got beyond the point: the signal takes a moment, for
// which the fleet can wait on Linux only.
func (r *result) stopped(point string) (s stopped, apt bool) {
	history := slices.Clone(r.history)
	slices.SortStableFunc(history, func(a, b event) int { return a.At.Compare(b.At) })
	i := slices.IndexFunc(history, func(e event) bool { return strings.HasPrefix(e.Detail, string(fleet.SIGSTOP)) })
	s = stopped{at: history[i].At, pid: history[i].PID}
	for _, e := range history[:i] {
		if e.PID == s.pid && e.What == saidAt+point {
			s.key, s.body = key{e.Consumer, e.ID}, e.Payload
		}
	}
	settled := func(e event) bool {
		return e.PID != s.pid && e.What == "parent: "+string(fleet.EventAcked) && e.Consumer == s.key.consumer && e.Payload == s.body
	}
	if slices.ContainsFunc(history[:i], settled) {
		return s, false
	}
	for _, e := range history[i:] {
		switch {
		case e.PID == s.pid && e.What == saidPast+point && e.At.Sub(s.at) < stoppedBound/10:
			return s, false
		case s.freed == 0 && settled(e):
			s.freed = e.At.Sub(s.at)
		}
	}
	return s, true
}

// commitsOf returns what the commits of a process for a message came to.
func (r *result) commitsOf(pid int, k key) []string {
	var outcomes []string
	for _, e := range r.history {
		if e.PID == pid && e.Consumer == k.consumer && e.ID == k.id && e.What == saidCommit {
			outcomes = append(outcomes, e.Detail)
		}
	}
	return outcomes
}

// TestStoppedHolderFreesItsKey: a process that stands still loses its key within the
// bound, because the server ends its transaction. Another one completes the message
// meanwhile, and when the first goes on it changes nothing.
func TestStoppedHolderFreesItsKey(t *testing.T) {
	t.Parallel()
	for _, point := range rotation.Turn(t, 2, stopPoints()...) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			systems := map[string]opener{"postgres": newPostgres}
			if point == pointBetween || point == pointCommitStart || rotation.Kills(t) > 0 {
				systems["mariadb"] = newMariaDB
			}
			if rotation.Kills(t) > 0 {
				systems["mysql"], systems["postgres+sql"], systems["lib/pq"], systems["pgbouncer"] = newProxiedMySQL, newSQLDB, newPQ, newPooledPostgres
			}
			on(t, systems, func(t *testing.T, open opener) { freesItsKey(t, open, point) })
		})
	}
}

// stopPoints are the points that two workers reach: a hold takes a crowd.
func stopPoints() []string {
	return slices.DeleteFunc(slices.Clone(points), func(point string) bool { return point == pointHold })
}

func freesItsKey(t *testing.T, open opener, point string) {
	t.Helper()
	const pause = 15 * time.Second // the end of everything else comes first
	r, s := stop(t, open, point, "", pause)
	r.must(t)
	const margin = 12 * time.Second // pauses of those who wait, on a busy machine
	if s.freed == 0 || s.freed > stoppedBound+margin {
		t.Errorf("%v was completed by another process %s after its holder was stopped, the bound is %s\n%s",
			s.key, s.freed, stoppedBound, tell(about(r.history, s.key)))
	}
	t.Logf("completed elsewhere after %s", s.freed)
	if point == pointCommitEnd || point == pointDeliveryEnd {
		return // it had committed
	}
	if commits := r.commitsOf(s.pid, s.key); slices.Contains(commits, "") {
		t.Errorf("the stopped process has committed %v after all: %q\n%s", s.key, commits, tell(about(r.history, s.key)))
	}
}

// TestStoppedWriterHoldsUpTheFile: SQLite has no server that could end the transaction
// of a stopped process. The others hold their deliveries until it goes on, and nothing
// is lost.
func TestStoppedWriterHoldsUpTheFile(t *testing.T) {
	t.Parallel()
	for _, point := range rotation.Turn(t, 2, stopPoints()...) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			const pause = 2 * time.Second
			r, s := stop(t, newSQLite, point, "", pause)
			r.must(t)
			holding := slices.Contains([]string{pointClaimEnd, pointBetween, pointHandlerEnd, pointCommitStart}, point)
			if holding && s.freed != 0 && s.freed < pause {
				t.Errorf("%v was completed elsewhere while its holder stood still\n%s", s.key, tell(about(r.history, s.key)))
			}
		})
	}
}

// noBound lets a transaction stand still for as long as it likes.
type noBound struct{ stores.Store }

func (n noBound) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	claim.Bound = 0
	return n.Store.Begin(ctx, claim)
}

// TestMissingBoundIsFound: without the server's bound a stopped process keeps its key
// for as long as it stands still.
func TestMissingBoundIsFound(t *testing.T) {
	t.Parallel()
	systems := today(t, 1, map[string]opener{"postgres": newPostgres, "mariadb": newMariaDB})
	if rotation.Kills(t) > 0 {
		systems["mysql"], systems["postgres+sql"], systems["lib/pq"], systems["pgbouncer"] = newProxiedMySQL, newSQLDB, newPQ, newPooledPostgres
	}
	on(t, systems, func(t *testing.T, open opener) {
		const pause = 4 * time.Second
		_, s := stop(t, open, pointBetween, "no bound", pause)
		if s.freed != 0 && s.freed < pause {
			t.Errorf("the key was freed after %s, and the transaction had no bound", s.freed)
		}
	})
}
