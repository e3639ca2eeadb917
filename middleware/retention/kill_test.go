//go:build unix

package retention_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A sweeper, or a claimer, in a process of its own is told by these what to do.
const (
	killedStore  = "MILLPOND_TEST_SWEEP_STORE"
	killedRole   = "MILLPOND_TEST_SWEEP_ROLE" // sweep or claim
	killedDir    = "MILLPOND_TEST_SWEEP_DIR"  // for what it writes down
	killedBroken = "MILLPOND_TEST_SWEEP_BROKEN"
)

func TestMain(m *testing.M) {
	address := os.Getenv(killedStore)
	if address == "" {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		os.Exit(0)
	}()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	run := claims
	if os.Getenv(killedRole) == "sweep" {
		run = sweeps
	}
	if err := run(address, os.Getenv(killedDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// plantedHours is how many messages were completed, one in each hour until now, and effectsTable
// has what their handlers have done.
const (
	plantedHours = 240
	keptDays     = 7
	effectsTable = "CREATE TABLE effects (id varchar(100) NOT NULL)"
)

// tookAt is when the broker took the message of an hour, as far as the process knows.
func tookAt(hour int) time.Time {
	return time.Now().Add(-time.Duration(hour)*time.Hour - time.Minute)
}

// note writes a line that outlasts the process.
func note(dir, file, line string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
		err = errors.Join(err, f.Close())
	}
	return err
}

// sweeps runs one pass after another, as cron would. The process may die at each step, the
// archive may fail, and the clock may have jumped.
func sweeps(address, dir string) error {
	store, err := stores.Open(context.Background(), address)
	if err != nil {
		return err
	}
	target := retention.Store(mortal{store.(retention.Store), dir, rand.N(8) == 0})
	if broken, ok := brokenSweepers[os.Getenv(killedBroken)]; ok {
		target = broken.wrap(target, address)
	}
	s, err := retention.New(target, retention.Config{
		Service: stock.Service, Windows: retention.Windows{Window: keptDays * day}, Rate: 1 << 20, Logger: slog.New(slog.DiscardHandler),
		Archive: func(_ context.Context, rows []stores.PurgedRow) error {
			if rand.N(8) == 0 {
				return errors.New("the disk is full")
			}
			for _, r := range rows {
				if err := note(dir, "archive", string(r.ID)); err != nil {
					return err
				}
			}
			return nil
		},
	})
	for err == nil {
		_, err = s.Pass(context.Background(), retention.Options{})
		if errors.Is(err, retention.ErrClocks) || errors.Is(err, stores.ErrArchive) || errors.Is(err, stores.ErrUnavailable) {
			err = note(dir, "deaths", "refused: "+strings.SplitN(err.Error(), ":", 3)[1])
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// mortal is a store whose process may die before and after each step.
type mortal struct {
	retention.Store
	dir    string
	jumped bool // the database's clock, by a year
}

func (m mortal) point(name string) {
	if rand.N(12) == 0 {
		_ = note(m.dir, "deaths", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func (m mortal) Watermarks(ctx context.Context) (stores.Watermarks, error) {
	w, err := m.Store.Watermarks(ctx)
	if m.jumped {
		w.Now = w.Now.Add(365 * day)
	}
	return w, err
}

func (m mortal) Survey(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	m.point("before survey")
	return m.Store.Survey(ctx, q)
}

func (m mortal) Announce(ctx context.Context, c stores.Consumer, through time.Time) error {
	m.point("before announce")
	err := m.Store.Announce(ctx, c, through)
	m.point("after announce")
	return err
}

func (m mortal) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	m.point("before purge")
	q.Rows = 20 // so that it dies between two ranges
	archive := q.Archive
	q.Archive = func(rows []stores.PurgedRow) error {
		err := archive(rows)
		m.point("between archive and commit")
		return err
	}
	r, err := m.Store.Purge(ctx, q)
	m.point("after purge")
	return r, err
}

// claims delivers what was completed long ago, as after a reset of offsets, and what is new, and
// has effects where a claim is won. The parent kills it at any moment.
func claims(address, dir string) error {
	ctx := context.Background()
	opened, err := stores.Open(ctx, address)
	if err != nil {
		return err
	}
	store := opened.(stores.Store)
	if err := store.Register(ctx, stores.Registration{Consumer: stock, Topic: "orders"}); err != nil {
		return err
	}
	var fresh []string
	for n := 0; ; n++ {
		id, took := "", time.Now()
		switch {
		case rand.N(3) > 0:
			hour := rand.N(plantedHours)
			id, took = fmt.Sprint(hour), tookAt(hour)
		case len(fresh) > 0 && rand.N(2) == 0:
			id = fresh[rand.N(len(fresh))]
		default:
			id = fmt.Sprintf("new %d %d", os.Getpid(), n)
			fresh = append(fresh, id)
		}
		outcome, err := deliver(ctx, store, id, took)
		if err != nil && !errors.Is(err, stores.ErrUnavailable) {
			return fmt.Errorf("%s: %w", id, err)
		}
		if outcome == stores.Stale {
			err = note(dir, "stale", id)
		}
		if err != nil {
			return err
		}
	}
}

func deliver(ctx context.Context, store stores.Store, id string, took time.Time) (stores.Outcome, error) {
	attempt, v, err := store.Begin(ctx, stores.Claim{Key: stores.Key{Consumer: stock, ID: []byte(id)}, Time: took, Bound: time.Minute})
	if err != nil || v.Outcome != stores.Claimed {
		return v.Outcome, err
	}
	const insert = "INSERT INTO effects VALUES "
	handler := attempt.Context(ctx)
	if tx, ok := sqlite.TxFromContext(handler); ok {
		_, err = tx.ExecContext(ctx, insert+"(?)", id)
	} else if tx, ok := postgres.TxFromContext(handler); ok {
		_, err = tx.Exec(ctx, insert+"($1)", id)
	}
	if err != nil {
		return v.Outcome, errors.Join(err, attempt.Rollback(ctx))
	}
	return v.Outcome, attempt.Commit(ctx)
}

// brokenSweepers break one rule each, which is noticed by what is wrong then.
var brokenSweepers = map[string]struct {
	wrap  func(s retention.Store, address string) retention.Store
	wrong string
}{
	"nothing is announced": {func(s retention.Store, address string) retention.Store { return &silent{Store: s, address: address} }, "has 2 effects"},
	"by a process's clock": {func(s retention.Store, _ string) retention.Store { return ahead{s} }, "is younger than the window, and purged"},
}

// silent deletes what was never announced.
type silent struct {
	retention.Store
	address string
}

func (*silent) Announce(context.Context, stores.Consumer, time.Time) error { return nil }

func (s *silent) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	db, err := openAdmin(s.address)
	if err != nil || len(q.Limits) == 0 {
		return stores.PurgeRange{}, err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "DELETE FROM millpond_inbox WHERE status = 2 AND completed_at <= "+at(s.address, q.Limits[0].Before))
	return stores.PurgeRange{}, err
}

// ahead measures windows by a clock that is two days ahead.
type ahead struct{ retention.Store }

func (a ahead) by(q stores.PurgeQuery) stores.PurgeQuery {
	q.Limits = slices.Clone(q.Limits)
	for i := range q.Limits {
		q.Limits[i].Before = q.Limits[i].Before.Add(2 * day)
	}
	return q
}

func (a ahead) Survey(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	return a.Store.Survey(ctx, a.by(q))
}

func (a ahead) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	return a.Store.Purge(ctx, a.by(q))
}

// openAdmin opens the database beside the store.
func openAdmin(address string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(address, "sqlite://"); ok {
		path, _, _ = strings.Cut(path, "?")
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	}
	return sql.Open("pgx", address)
}

// at is a time as SQL.
func at(address string, t time.Time) string {
	if strings.HasPrefix(address, "sqlite://") {
		return strconv.FormatInt(t.UnixMicro(), 10)
	}
	return fmt.Sprintf("to_timestamp(%d / 1000000.0)", t.UnixMicro())
}

// killed is a database on which processes sweep and claim, and are killed.
type killed struct {
	testing.TB

	address, dir string
	admin        *sql.DB
	deaths       atomic.Int64
}

func killedOn(tb testing.TB, system string) *killed {
	tb.Helper()
	k := &killed{TB: tb, dir: tb.TempDir()}
	k.address = "sqlite://" + filepath.Join(k.dir, "killed.db") + "?synchronous=normal&busy_timeout=1m"
	if system == "postgres" {
		k.address = testenv.VolatilePostgres(tb).NewDatabase(tb)
	}
	ctx := tb.Context()
	opened, err := stores.Open(ctx, k.address)
	k.must(err)
	defer opened.Close()
	store := opened.(stores.Store)
	_, err = store.Migrate(ctx)
	k.must(err)
	k.must(store.Register(ctx, stores.Registration{Consumer: stock, Topic: "orders"}))
	k.admin, err = openAdmin(k.address)
	k.must(err)
	tb.Cleanup(func() { _ = k.admin.Close() })
	k.exec(effectsTable)
	for hour := range plantedHours {
		outcome, err := deliver(ctx, store, fmt.Sprint(hour), time.Now())
		if k.must(err); outcome != stores.Claimed {
			tb.Fatal(outcome)
		}
		k.exec("UPDATE millpond_inbox SET completed_at = " + at(k.address, tookAt(hour).Add(time.Second)) + " WHERE message_id = " + k.id(fmt.Sprint(hour)))
	}
	return k
}

func (k *killed) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *killed) exec(text string) {
	k.Helper()
	_, err := k.admin.ExecContext(k.Context(), text)
	k.must(err)
}

func (k *killed) id(id string) string {
	if strings.HasPrefix(k.address, "sqlite://") {
		return "CAST('" + id + "' AS BLOB)"
	}
	return "convert_to('" + id + "', 'UTF8')"
}

// strings reads one column.
func (k *killed) strings(text string) (all []string) {
	k.Helper()
	rows, err := k.admin.QueryContext(context.WithoutCancel(k.Context()), text)
	k.must(err)
	defer rows.Close()
	for rows.Next() {
		var s string
		k.must(rows.Scan(&s))
		all = append(all, s)
	}
	k.must(rows.Err())
	return all
}

func (k *killed) lines(file string) []string {
	content, err := os.ReadFile(filepath.Join(k.dir, file))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// process runs one process after another in a role, until ctx ends; each is killed after a
// while, if it has not killed itself.
func (k *killed) process(ctx context.Context, role, broken string, lives time.Duration) {
	for ctx.Err() == nil {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killedStore+"="+k.address, killedRole+"="+role, killedDir+"="+k.dir, killedBroken+"="+broken)
		cmd.Stderr = os.Stderr
		input, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			k.Error(err)
			return
		}
		kill := time.AfterFunc(lives/4+rand.N(lives), func() { _ = cmd.Process.Kill() })
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		kill.Stop()
		stop()
		_ = input.Close()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
			k.Errorf("the %s process ended: %v", role, err)
			return
		}
		k.deaths.Add(1)
	}
}

// hurt lets two sweepers and two claimers run until so many processes have died and something
// was purged, and returns what is wrong in the end.
func (k *killed) hurt(deaths int, broken string) (wrong []string) {
	ctx, stop := context.WithTimeout(k.Context(), 3*time.Minute+time.Duration(deaths)*2*time.Second)
	defer stop()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { k.process(ctx, "sweep", broken, 8*time.Second) })
		all.Go(func() { k.process(ctx, "claim", broken, 3*time.Second) })
	}
	for ctx.Err() == nil && (k.deaths.Load() < int64(deaths) || len(k.lines("archive")) == 0 && broken == "") {
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	all.Wait()
	if broken == "" { // with faults over it comes to its end
		k.finish()
	}
	points := make(map[string]int)
	for _, point := range k.lines("deaths") {
		points[point]++
	}
	k.Logf("%d processes died, by themselves or not %v; %d lines of archive, %d stale deliveries", k.deaths.Load(), points, len(k.lines("archive")), len(k.lines("stale")))
	return k.check(broken == "")
}

func (k *killed) finish() {
	store, err := stores.Open(k.Context(), k.address)
	k.must(err)
	defer store.Close()
	s, err := retention.New(store.(retention.Store), retention.Config{
		Service: stock.Service, Windows: retention.Windows{Window: keptDays * day}, Logger: slog.New(slog.DiscardHandler),
		Archive: func(_ context.Context, rows []stores.PurgedRow) error {
			for _, r := range rows {
				k.must(note(k.dir, "archive", string(r.ID)))
			}
			return nil
		},
	})
	k.must(err)
	_, err = s.Pass(k.Context(), retention.Options{})
	k.must(err)
}

// check compares what is committed: I1, an effect for each message; I7, nothing that is younger
// than the window is gone, and nothing of it runs again.
func (k *killed) check(whole bool) (wrong []string) {
	effects, rows := make(map[string]int), make(map[string]bool)
	for _, id := range k.strings("SELECT id FROM effects") {
		effects[id]++
	}
	for _, id := range k.strings("SELECT message_id FROM millpond_inbox WHERE status = 2") {
		rows[id] = true
	}
	for id, n := range maps.All(effects) {
		if n != 1 {
			wrong = append(wrong, fmt.Sprintf("message %s has %d effects", id, n))
		}
	}
	archived := k.lines("archive")
	const kept = keptDays * 24
	for hour := range plantedHours {
		id := fmt.Sprint(hour)
		switch {
		case effects[id] == 0:
			wrong = append(wrong, "the effect of message "+id+" is gone")
		case hour < kept-1 && !rows[id]:
			wrong = append(wrong, "message "+id+" is younger than the window, and purged")
		case hour > kept && rows[id] && whole:
			wrong = append(wrong, "message "+id+" is older than the window, and not purged")
		case !rows[id] && !slices.Contains(archived, id):
			wrong = append(wrong, "message "+id+" is not in the archive")
		}
	}
	for id := range rows {
		if effects[id] == 0 {
			wrong = append(wrong, "message "+id+" is completed and has no effect")
		}
	}
	for _, id := range k.lines("stale") {
		if hour, err := strconv.Atoi(id); id != "" && (err != nil || hour < kept-1) {
			wrong = append(wrong, "message "+id+" is younger than the window, and stale")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// Sweepers and claimers die at every step, the archive fails, clocks have jumped, and offsets are
// reset: each message has one effect, and nothing goes before its time. With MILLPOND_SOAK=n this
// goes on until n processes have died on each store.
func TestKilledSweepers(t *testing.T) {
	t.Parallel()
	deaths := 12
	if n, err := strconv.Atoi(os.Getenv(rotation.SoakVariable)); err == nil {
		deaths = max(n, deaths)
	}
	for _, system := range rotation.Turn(t, 1, "postgres", "sqlite") {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			for _, one := range killedOn(t, system).hurt(deaths, "") {
				t.Errorf("%.300s", one)
			}
		})
	}
}

// Each of these sweepers breaks a rule, and is noticed.
func TestKilledSweepersThatAreBroken(t *testing.T) {
	t.Parallel()
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(brokenSweepers))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				wrong := strings.Join(killedOn(t, "sqlite").hurt(8, name), "\n")
				if strings.Contains(wrong, brokenSweepers[name].wrong) {
					t.Logf("%.200s", wrong)
					return
				}
			}
			t.Error("nothing is wrong")
		})
	}
}
