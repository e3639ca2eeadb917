//go:build unix

package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
)

// lossy loses some COMMITs, and some replies to them.
var lossy = pgproxy.RandomFaults{Seed: 1, LoseCommitReply: 0.01, LoseCommitRequest: 0.01}

// throughProxy are stores with the address by which processes reach them.
var throughProxy = map[string]func(testing.TB) (r *rig, address string){
	"sqlite": func(tb testing.TB) (*rig, string) {
		r := onSQLite(tb)
		return r, r.address
	},
	"postgres": func(tb testing.TB) (*rig, string) {
		r, address := lossyPostgres(tb)
		return r, pgtest.WithParameters(tb, address, "pool_max_conns", "6")
	},
	"sqldb": func(tb testing.TB) (*rig, string) {
		r, address := lossyPostgres(tb)
		u, err := url.Parse(pgtest.WithParameters(tb, address, "pool_max_conns", "6"))
		check(tb, err)
		u.Scheme = "postgres+sql"
		return r, u.String()
	},
	"mariadb": func(tb testing.TB) (*rig, string) { return lossyMySQL(tb, testenv.MariaDB(tb).NewDatabase(tb)) },
	"mysql":   func(tb testing.TB) (*rig, string) { return lossyMySQL(tb, testenv.MySQL(tb).NewDatabase(tb)) },
}

func lossyPostgres(tb testing.TB) (*rig, string) {
	tb.Helper()
	r := onPostgres(tb)
	proxy, err := pgproxy.Start(r.address)
	check(tb, err)
	tb.Cleanup(func() { _ = proxy.Close() })
	proxy.SetRandomFaults(lossy)
	return r, proxy.URL()
}

func lossyMySQL(tb testing.TB, database string) (*rig, string) {
	tb.Helper()
	r := onMySQLAt(tb, database)
	proxy, err := myproxy.Start(r.address)
	check(tb, err)
	tb.Cleanup(func() { _ = proxy.Close() })
	proxy.SetRandomFaults(lossy)
	return r, proxy.URL()
}

// chaos is a pipeline whose writers and relays die, and whose broker is away now and then.
type chaos struct {
	*rig

	address string
	path    string // of what is published
	relays  *fleet
	writers []*fleet
	most    int           // relays at a time
	away    time.Duration // of the broker, at most
}

// newChaos makes the tables, two producers and two handlers.
func newChaos(tb testing.TB, store, broken string) *chaos {
	tb.Helper()
	r, address := throughProxy[store](tb)
	c := &chaos{rig: r, address: address, path: filepath.Join(tb.TempDir(), "published"), most: 3, away: 2 * time.Second}
	if rotation.Soak() {
		c.most, c.away = 8, 20*time.Second
	}
	s, err := openSpeaker(tb.Context(), r.address)
	check(tb, err)
	_, exec, commit, _, err := s.begin(tb.Context())
	check(tb, err)
	for _, statement := range saidSchema {
		check(tb, exec(statement))
	}
	for key := range storyKeys {
		check(tb, exec(fmt.Sprintf("INSERT INTO spoken (order_key, n) VALUES ('%d', 0)", key)))
	}
	check(tb, commit())
	check(tb, s.store.Close())
	c.relays = &fleet{tb: tb, env: []string{relayStore + "=" + address, relayFile + "=" + c.path, relayBroken + "="}}
	for i, kind := range []string{producing, producing, handling, handling} {
		env := []string{
			writerStore + "=" + address, writerKind + "=" + kind, writerName + "=" + fmt.Sprint(kind, i), writerMarks + "=" + filepath.Join(tb.TempDir(), fmt.Sprint("marks", i)),
		}
		if broken == publishBeforeCommit && kind == producing {
			env = append(env, writerBroken+"="+c.path)
		}
		c.writers = append(c.writers, &fleet{tb: tb, env: env})
	}
	return c
}

const publishBeforeCommit = "publish before commit"

func (c *chaos) writersDied() (n int) {
	for _, f := range c.writers {
		n += f.died()
	}
	return n
}

// run hurts everything until so many relays and writers have died, and returns what is wrong at
// rest.
func (c *chaos) run(deaths int) (wrong []string) {
	c.tb.Helper()
	began := time.Now()
	ctx, stop := context.WithCancel(c.tb.Context())
	var writing, relaying sync.WaitGroup
	var want atomic.Int64
	want.Store(2)
	for i := range c.most {
		relaying.Go(func() {
			for ctx.Err() == nil {
				if int64(i) < want.Load() {
					c.relays.relay(ctx, 1)
				} else {
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	relaying.Go(func() {
		for pause(ctx, time.Second) {
			want.Store(2 + rand.Int64N(int64(c.most-1)))
		}
	})
	relaying.Go(func() { c.leave(ctx) })
	writeCtx, stopWriting := context.WithCancel(ctx)
	for _, f := range c.writers {
		writing.Go(func() { f.relay(writeCtx, 1_000_000) })
	}
	for pause(ctx, 50*time.Millisecond) && (c.relays.died() < deaths || c.writersDied() < deaths) {
	}
	stopWriting()
	writing.Wait()
	stop()
	relaying.Wait()
	wrong = c.atRest()
	c.tb.Logf("%d relays and %d writers died, in %v", c.relays.died(), c.writersDied(), time.Since(began).Round(time.Second))
	return wrong
}

// leave lets the broker be away now and then.
func (c *chaos) leave(ctx context.Context) {
	for pause(ctx, time.Second+rand.N(3*time.Second)) {
		check(c.tb, os.WriteFile(c.path+awaySuffix, nil, 0o600))
		pause(ctx, c.away/4+rand.N(c.away))
		check(c.tb, os.Remove(c.path+awaySuffix))
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// atRest publishes what is left, and compares what was published with what was committed.
func (c *chaos) atRest() (wrong []string) {
	c.tb.Helper()
	own, err := openFile(c.path)
	check(c.tb, err)
	defer own.Close()
	_, end := start(c.tb, c.outbox, killedConfig(own))
	for deadline := time.Now().Add(30 * time.Second); c.waiting() > 0 && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
	}
	end()
	if n := c.waiting(); n > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages are not published", n))
	}
	ctx := context.WithoutCancel(c.tb.Context())
	s, err := openSpeaker(ctx, c.rig.address)
	check(c.tb, err)
	defer s.store.Close()
	rows, err := s.query(ctx, "SELECT id, order_key, n FROM said ORDER BY order_key, n")
	check(c.tb, err)
	of, committed := make(map[string]string), make(map[string][]string)
	for _, row := range rows {
		if _, twice := of[row[0]]; twice {
			wrong = append(wrong, "said twice: "+row[0])
		}
		of[row[0]], committed[row[1]] = row[1], append(committed[row[1]], row[0])
	}
	b, died := readFile(c.tb, c.path)
	first := make(map[string][]string)
	for _, id := range b.first() {
		key, known := of[id]
		if !known {
			wrong = append(wrong, "not committed, and published: "+id)
		}
		first[key] = append(first[key], id)
	}
	for key, want := range committed {
		if got := first[key]; !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("key %s: published %d %q, committed %d %q", key, len(got), got, len(want), want))
		}
	}
	c.tb.Logf("relays died by themselves %v; %d messages were committed, and published %d times", died, len(of), len(b.taken))
	return append(wrong, s.downstream(ctx, c.tb, b)...)
}

// downstream delivers what was published, in its order and as often, to a handler behind an
// inbox.
func (s *speaker) downstream(ctx context.Context, tb testing.TB, b *broker) (wrong []string) {
	tb.Helper()
	const atMost = 1000
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Service: "downstream", Handler: "listen", Logger: slog.New(slog.DiscardHandler), CacheSize: -1})
	check(tb, err)
	deliver := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, s.within(msg.Context())("INSERT INTO effect (id) VALUES ('" + msg.UUID + "')")
	})
	ids := make(map[string]bool)
	taken := b.messages()
	for _, msg := range taken[max(len(taken)-atMost, 0):] {
		ids[msg.UUID] = true
		life, settled := context.WithCancel(ctx)
		_, err := deliver(message.NewMessageWithContext(life, msg.UUID, msg.Payload))
		settled()
		check(tb, err)
	}
	rows, err := s.query(ctx, "SELECT count(*), count(DISTINCT id) FROM effect")
	check(tb, err)
	if want := strconv.Itoa(len(ids)); rows[0][0] != want || rows[0][1] != want {
		wrong = append(wrong, fmt.Sprintf("downstream: %s effects of %s messages, want %s", rows[0][0], rows[0][1], want))
	}
	return wrong
}

// Producers and handlers die in the middle of what they say, relays in the middle of publishing
// it, replies to COMMIT are lost, and the broker is away now and then. At rest what was
// committed is published, in the order of commits within each order key, and nothing else; and
// behind an inbox it takes effect once. With MILLPOND_SOAK=n this goes on until n relays and
// n writers have died on each store.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	deaths := 8
	if n, err := strconv.Atoi(os.Getenv(rotation.SoakVariable)); err == nil {
		deaths = max(n, deaths)
	}
	for _, name := range rotation.Turn(t, 1, "mariadb", "mysql", "postgres", "sqldb", "sqlite") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range newChaos(t, name, "").run(deaths) {
				t.Errorf("%.600s", wrong)
			}
		})
	}
}
