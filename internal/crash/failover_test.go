package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	mysqlserver "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// A failover to a standby that lacks the last commits, and a data directory that is set back,
// while services run. The database loses what it loses; of what is handled afterwards each
// message has its effect once.

// failing is a system whose server is about to lose its last commits.
type failing struct {
	*system

	part    func() error            // from now on, commits will be lost
	succeed func() error            // they are lost, and the address leads to who has the rest
	survive func() (*sql.DB, error) // opens what is left
}

// failovers are the ways to lose commits, by name.
var failovers = map[string]func(t *testing.T) *failing{
	"postgres standby": postgresStandby("postgres", onPostgres), "mariadb standby": mariaDBStandby, "pgbouncer standby": postgresStandby("pgbouncer", onPooledPostgres),
	"postgres set back": postgresSetBack("postgres"), "mariadb set back": mysqlSetBack("mariadb", testenv.PrivateMariaDB),
	"postgres+sql set back": postgresSetBack("postgres+sql"), "mysql set back": mysqlSetBack("mysql", testenv.PrivateMySQL),
}

func postgresStandby(name string, on func(t *testing.T, name, databaseURL string) *system) func(t *testing.T) *failing {
	return func(t *testing.T) *failing {
		t.Helper()
		primary, standby := testenv.PrivatePostgres(t), testenv.PrivatePostgres(t)
		databaseURL := primary.NewDatabase(t)
		address := postgresDialect.proxied(t, databaseURL)
		s := on(t, name, address.URL()).behindProxy(t)
		if err := standby.Follow(t.Context(), primary.Server); err != nil {
			t.Fatal(err)
		}
		at := openAdmin(t, at(t, databaseURL, standby.Address()))
		t.Cleanup(func() { _ = at.Close() })
		return &failing{
			system: s,
			part: func() error {
				var lsn string
				if err := s.admin.QueryRow("SELECT pg_current_wal_lsn()::text").Scan(&lsn); err != nil {
					return err
				}
				if err := until(t, at, "SELECT pg_last_wal_replay_lsn() >= '"+lsn+"'"); err != nil {
					return err
				}
				return errors.Join(each(t, at, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"),
					until(t, at, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"))
			},
			succeed: func() error {
				address.Redirect(standby.Address())
				return errors.Join(primary.Kill(), each(t, at, "SELECT pg_promote()"))
			},
			survive: func() (*sql.DB, error) { return at, nil },
		}
	}
}

func mariaDBStandby(t *testing.T) *failing {
	t.Helper()
	settings := func(id string) func(*mysqlserver.Config) {
		return testenv.WithMySQLSettings(map[string]string{"server_id": id, "log_bin": "log", "log_slave_updates": "ON"})
	}
	primary, standby := testenv.PrivateMariaDB(t, settings("1")), testenv.PrivateMariaDB(t, settings("2"))
	replica, err := mysqlserver.Open(standby.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = replica.Close() })
	host, port, _ := net.SplitHostPort(primary.Address())
	if err := each(t, replica, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_USE_GTID = slave_pos", host, port), "START SLAVE"); err != nil {
		t.Fatal(err)
	}
	databaseURL := primary.NewDatabase(t)
	address := mysqlDialect.proxied(t, databaseURL)
	s := onMySQL(t, "mariadb", address.URL()).behindProxy(t)
	return &failing{
		system: s,
		part: func() error {
			var position string
			if err := s.admin.QueryRow("SELECT @@gtid_binlog_pos").Scan(&position); err != nil {
				return err
			}
			return errors.Join(until(t, replica, "SELECT MASTER_GTID_WAIT('"+position+"', 20) = 0"), each(t, replica, "STOP SLAVE IO_THREAD"))
		},
		succeed: func() error {
			address.Redirect(standby.Address())
			return errors.Join(primary.Kill(), each(t, replica, "STOP SLAVE", "RESET SLAVE ALL"))
		},
		survive: func() (*sql.DB, error) { return mysqlserver.Open(at(t, databaseURL, standby.Address())) },
	}
}

func postgresSetBack(name string) func(t *testing.T) *failing {
	return func(t *testing.T) *failing {
		t.Helper()
		server := testenv.PrivatePostgres(t)
		databaseURL := server.NewDatabase(t)
		f := setBack(t, onPostgres(t, name, databaseURL), server)
		f.survive = func() (*sql.DB, error) { return openAdmin(t, databaseURL), nil }
		return f
	}
}

func mysqlSetBack(name string, private func(testing.TB, ...func(*mysqlserver.Config)) *testenv.PrivateMySQLServer) func(t *testing.T) *failing {
	return func(t *testing.T) *failing {
		t.Helper()
		server := private(t)
		databaseURL := server.NewDatabase(t)
		f := setBack(t, onMySQL(t, name, databaseURL), server, []string{"sleep", "1"}) // the start is known to the second
		f.survive = func() (*sql.DB, error) { return mysqlserver.Open(databaseURL) }
		return f
	}
}

// setBack sets a server's data back to what they were. The steps are more commands before its next
// start.
func setBack(t *testing.T, s *system, server interface {
	RestartAfter(ctx context.Context, between func(dir string) error) error
}, steps ...[]string,
) *failing {
	t.Helper()
	after := func(steps ...[]string) func() error {
		return func() error {
			return server.RestartAfter(t.Context(), func(dir string) error {
				for _, step := range steps {
					command := exec.CommandContext(t.Context(), step[0], step[1:]...)
					command.Dir = dir
					if out, err := command.CombinedOutput(); err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
				}
				return nil
			})
		}
	}
	return &failing{
		system:  s.behindProxy(t),
		part:    after([]string{"cp", "-a", "data", "saved"}),
		succeed: after(append(steps, []string{"rm", "-rf", "data"}, []string{"mv", "saved", "data"})...),
	}
}

// at is a URL with another host.
func at(t *testing.T, rawURL, address string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address
	return u.String()
}

func each(t *testing.T, db *sql.DB, statements ...string) error {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// until asks until the answer is true.
func until(t *testing.T, db *sql.DB, question string) error {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		var answer sql.NullBool
		err := db.QueryRowContext(t.Context(), question).Scan(&answer)
		switch {
		case err == nil && answer.Bool:
			return nil
		case time.Now().After(deadline):
			return errors.Join(fmt.Errorf("%s: never true", question), err)
		}
		pause.Sleep(t.Context(), openAgain)
	}
}

// program is one run of a service with one handler.
type program struct {
	*backend

	consumer stores.Consumer
	handle   message.HandlerFunc
	changes  atomic.Int64 // of the server, as it was told
	fails    atomic.Bool
}

// ServerChanged implements middleware.ServerHook.
func (p *program) ServerChanged(error) { p.changes.Add(1) }

func (f *failing) start(t *testing.T, handler string, broken func(*backend) middleware.Store) *program {
	t.Helper()
	b, err := clients[f.name](t.Context(), f.url, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.store.Close(); b.close() })
	p := &program{backend: b, consumer: stores.Consumer{Service: service, Handler: handler}}
	store := middleware.Store(b.store)
	if broken != nil {
		store = broken(b)
	}
	in, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: service, Handler: handler, Hooks: []middleware.Hook{p}, ClaimTimeout: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	effect := b.handler(func(ctx context.Context, tx transaction, msg *message.Message) error {
		if p.fails.Load() {
			return errors.New("it fails")
		}
		return tx.exec(ctx, insertEffect, handler, msg.UUID, 1, "", "")
	})
	p.handle = in.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, effect(msg) })
	return p
}

// deliver delivers each message until it is acked.
func (p *program) deliver(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		for {
			if _, err := p.handle(message.NewMessage(id, []byte(id))); err == nil {
				break
			}
			if !pause.Sleep(t.Context(), openAgain) {
				t.Fatal("the test is over")
			}
		}
	}
}

// load delivers new messages until it is stopped, and returns those that were acked.
func (p *program) load(t *testing.T) (stop func() []string) {
	t.Helper()
	var (
		mu      sync.Mutex
		acked   []string
		over    atomic.Bool
		running sync.WaitGroup
	)
	for i := range 4 {
		running.Go(func() {
			for n := 0; !over.Load() && t.Context().Err() == nil; n++ {
				id := fmt.Sprintf("load %d.%d", i, n)
				p.deliver(t, id)
				mu.Lock()
				acked = append(acked, id)
				mu.Unlock()
			}
		})
	}
	return func() []string {
		over.Store(true)
		running.Wait()
		return acked
	}
}

func some(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(name, " ", i))
	}
	return ids
}

// through takes services through the loss, and returns what is wrong afterwards.
func (f *failing) through(t *testing.T, broken func(*backend) middleware.Store) (wrong []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	busy, quiet := f.start(t, "busy", broken), f.start(t, "quiet", broken)
	busy.deliver(t, some("kept", 10)...)
	quiet.deliver(t, some("kept", 10)...)
	must(f.part())

	stop := busy.load(t)
	late := f.start(t, "registered late", broken)
	late.deliver(t, some("same", 10)...)
	quiet.deliver(t, some("lost", 10)...)
	asked := time.Now()
	pause.Sleep(t.Context(), 100*time.Millisecond+rand.N(900*time.Millisecond)) // of load, that is lost
	must(f.succeed())
	pause.Sleep(t.Context(), 200*time.Millisecond) // and that is not
	ids := map[*program][]string{
		busy: append(stop(), some("kept", 10)...), quiet: append(some("lost", 10), some("kept", 10)...), late: some("more", 10),
	}
	late.deliver(t, ids[late]...)
	since := f.start(t, "registered since", broken)
	ids[since] = append(some("same", 10), some("more", 10)...)
	late.fails.Store(true)
	late.deliver(t, "parked")
	late.fails.Store(false)
	pause.Sleep(t.Context(), time.Until(asked.Add(3*time.Second))) // so that nothing was heard of the server for long
	ids[late] = append(ids[late], some("same", 10)...)
	for p := range ids { // what was acked since the backup is delivered again
		p.deliver(t, ids[p]...)
		if broken == nil && p != since && p.changes.Load() == 0 {
			wrong = append(wrong, fmt.Sprintf("%s was not told that the server has changed", p.consumer))
		}
	}
	db, err := f.survive()
	must(err)
	defer db.Close()
	count := func() {
		effects := make(map[string]int)
		must(query(t.Context(), db, "SELECT consumer, id FROM effect", func(rows *sql.Rows) error {
			var consumer, id string
			err := rows.Scan(&consumer, &id)
			effects[consumer+": "+id]++
			return err
		}))
		for p, all := range ids {
			for _, id := range all {
				if n := effects[p.consumer.Handler+": "+id]; n != 1 {
					wrong = append(wrong, fmt.Sprintf("%s: %s has %d effects", p.consumer.Handler, id, n))
				}
			}
		}
	}
	count()                   // before the next run makes good what this one has lost
	for p, all := range ids { // and to the next run of each service
		again := f.start(t, p.consumer.Handler, broken)
		again.deliver(t, all...)
		if p == late && broken == nil {
			m, err := again.store.Find(t.Context(), stores.Key{Consumer: p.consumer, ID: []byte("u:parked")})
			if err != nil || m.Status != stores.StatusPending {
				wrong = append(wrong, fmt.Sprintf("of the parked message is known %v, %v", m.Status, err))
			}
		}
	}
	count()
	slices.Sort(wrong)
	return wrong
}

func TestFailoverThatLosesCommits(t *testing.T) {
	t.Parallel()
	rounds := 1
	if rotation.Kills(t) > 0 {
		rounds = 20
	}
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(failovers))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				begun := time.Now()
				if wrong := failovers[name](t).through(t, nil); len(wrong) > 0 {
					t.Fatalf("%d are wrong: %s", len(wrong), strings.Join(wrong[:min(10, len(wrong))], "\n"))
				}
				t.Logf("round %d took %s", round+1, time.Since(begun).Round(time.Second))
			}
		})
	}
}

// TestFailoverFindsBrokenRules: what the rules about a change of servers prevent.
func TestFailoverFindsBrokenRules(t *testing.T) {
	t.Parallel()
	rules := map[string]func(*backend) middleware.Store{
		"completed keys are kept": func(b *backend) middleware.Store { return sameServer{b.store} },
		"numbers by sequence":     func(b *backend) middleware.Store { return &inSequence{Store: b.store, b: b} },
	}
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(rules))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range rotation.TurnEvery(t, len(rules), 1, slices.Sorted(maps.Keys(failovers))...) {
				f := failovers[way](t)
				if err := each(t, f.admin, "CREATE TABLE number_in_sequence (handler "+f.dialect.text+" NOT NULL)"); err != nil {
					t.Fatal(err)
				}
				if wrong := f.through(t, rules[name]); len(wrong) == 0 {
					t.Errorf("%s: nothing is wrong", way)
				} else {
					t.Logf("%s: %d are wrong: %s", way, len(wrong), wrong[0])
				}
			}
		})
	}
}

// sameServer does not tell which server has answered.
type sameServer struct{ stores.Store }

func (s sameServer) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, v, err := s.Store.Begin(ctx, c)
	v.Server = 0
	return a, v, err
}

func (s sameServer) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	v, err := s.Store.Look(ctx, k, f)
	v.Server = 0
	return v, err
}

// inSequence counts consumers under the number that is next when they are registered first.
type inSequence struct {
	stores.Store

	b       *backend
	mu      sync.Mutex
	numbers map[string]string
}

func (s *inSequence) Register(ctx context.Context, r stores.Registration) error {
	ask := func() (number string, err error) {
		place := "SELECT CAST(n AS CHAR(9)) FROM (SELECT handler, ROW_NUMBER() OVER () AS n FROM number_in_sequence) numbered WHERE handler = $1"
		err = s.b.db.QueryRowContext(ctx, s.b.dialect.placeholder(place), r.Consumer.Handler).Scan(&number)
		return strings.TrimSpace(number), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number, known := s.numbers[r.Consumer.Handler]
	if !known {
		var err error
		if number, err = ask(); errors.Is(err, sql.ErrNoRows) {
			if _, err = s.b.db.ExecContext(ctx, s.b.dialect.placeholder("INSERT INTO number_in_sequence VALUES ($1)"), r.Consumer.Handler); err == nil {
				number, err = ask()
			}
		}
		if err != nil {
			return errors.Join(stores.ErrUnavailable, err)
		}
	}
	s.numbers = map[string]string{r.Consumer.Handler: number}
	r.Consumer.Handler = number
	return s.Store.Register(ctx, r)
}

func (s *inSequence) of(k stores.Key) stores.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.Consumer.Handler = s.numbers[k.Consumer.Handler]
	return k
}

func (s *inSequence) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	c.Key = s.of(c.Key)
	return s.Store.Begin(ctx, c)
}

func (s *inSequence) Record(ctx context.Context, f stores.Failure) (int64, error) {
	f.Key = s.of(f.Key)
	return s.Store.Record(ctx, f)
}

func (s *inSequence) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	return s.Store.Look(ctx, s.of(k), f)
}
