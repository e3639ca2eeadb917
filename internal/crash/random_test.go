package crash

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

// randomly returns the stores of TestRandom: PostgreSQL and one other, which may be one whose server
// loses its last commits. Servers of their own, which may be killed, are for those that have everything and
// for the soak.
func randomly(t *testing.T) map[string]opener {
	t.Helper()
	others := map[string]opener{"mariadb": newFragileMariaDB, "sqlite": newSQLite, "postgres+sql": newSQLDB, "lib/pq": newPQ, "pgbouncer": newPooledPostgres, "mysql": newProxiedMySQL, "dynamodb": newDynamoDB}
	if rotation.Kills(t) > 0 {
		others["postgres+sql"], others["lib/pq"], others["mysql"] = newFragileSQLDB, newFragilePQ, newFragileMySQL
	}
	maps.Copy(others, losing())
	all := today(t, 1, others)
	all["postgres"] = newFragilePostgres
	return all
}

// TestRandom hurts workers, and where there are some the server and the network, at random
// times, while messages come in every order, several times and at once, and handlers
// misbehave in every way. With MILLPOND_SOAK=n it goes on, with one seed after the
// other, until n workers were killed.
func TestRandom(t *testing.T) {
	t.Parallel()
	on(t, randomly(t), func(t *testing.T, open opener) {
		seed := seedOf(t)
		messages, kills, wanted := 80, 14, 1
		if soak := rotation.Kills(t); soak > 0 {
			messages, kills, wanted = 600, 250, soak
		}
		begun := time.Now()
		for killed, done := 0, false; !done; seed++ {
			done = !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				s := open(t)
				n, kills := messages, kills
				switch {
				case s.failing != nil: // once in each trial
					n, kills, wanted = 40, 8, max(1, rotation.Kills(t)/10)
				case everyday[s.name] == nil && rotation.Kills(t) == 0:
					n, kills = 40, 8
				}
				r := randomTrial(s, seed, n, kills).run(t)
				r.must(t)
				t.Log(r.summary())
				killed += r.kills(fleet.SIGKILL)
			})
			if done = done || killed >= wanted; wanted > 1 {
				t.Logf("%d of %d workers killed after %s", killed, wanted, time.Since(begun).Round(time.Second))
			}
		}
	})
}

func randomTrial(s *system, seed uint64, messages, kills int) *trial {
	tr := &trial{
		system: s,
		orders: planted(workload(seed, messages, s.everything()), 1, s.can(borders...)...),
		setup:  setup{HandlerTimeout: 2 * time.Second, CommitTimeout: time.Second, HoldLimit: 10 * time.Second, MaxAttempts: 12 + kills/50, Redelivered: true, Operated: true}, // bad luck spends some
		Config: fleet.Config{Seed: seed, Workers: 4, Duplicates: 0.5, Apart: 200, Reorder: 30},
		limit:  4*time.Minute + time.Duration(messages)*200*time.Millisecond + time.Duration(kills)*time.Second,
	}
	acks := len(tr.orders) * len(consumers) // at least
	tr.Kills = fleet.RandomKills(seed, kills, acks, tr.Workers, fleet.SIGKILL, fleet.SIGKILL, fleet.SIGSTOP, fleet.SIGTERM)
	tr.Kills = append(tr.Kills, killsAt(seed, failurePoints, max(1, kills/50), 10)...)
	if s.proxy != nil {
		s.proxy.SetRandomFaults(lossy(seed))
		tr.disturb = outages(s, seed, max(8, kills/4))
	}
	if s.failing != nil {
		tr.loses(seed)
	}
	return tr
}
