//go:build unix

package retention_test

import (
	"context"
	"database/sql"
	"fmt"
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

	_ "github.com/jackc/pgx/v5/stdlib" // for database/sql

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	mysqlserver "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
)

// openAdmin opens the database beside the store.
func openAdmin(address string) (*sql.DB, error) {
	switch {
	case strings.HasPrefix(address, "sqlite://"):
		path, _, _ := strings.Cut(strings.TrimPrefix(address, "sqlite://"), "?")
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	case strings.HasPrefix(address, "mysql://"):
		return mysqlserver.Open(address)
	}
	return sql.Open("pgx", address)
}

func onPostgres(address string) bool { return strings.HasPrefix(address, "postgres") }

// at is a time as SQL.
func at(address string, t time.Time) string {
	if onPostgres(address) {
		return fmt.Sprintf("to_timestamp(%d / 1000000.0)", t.UnixMicro())
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// killed is a database on which processes sweep and claim, and are killed.
type killed struct {
	testing.TB

	address, dir string
	admin        *sql.DB
	restore      func() error // the backup of when the processes began; nil: it cannot be
	deaths       atomic.Int64
}

// private is a server that is stopped for a backup, and to restore it.
type private interface {
	NewDatabase(tb testing.TB) string
	RestartAfter(ctx context.Context, between func(dir string) error) error
}

func killedOn(tb testing.TB, system string) *killed {
	tb.Helper()
	k := &killed{TB: tb, dir: tb.TempDir()}
	k.address = "sqlite://" + filepath.Join(k.dir, "killed.db") + "?synchronous=normal&busy_timeout=1m"
	var server private
	switch system {
	case "postgres":
		k.address = testenv.VolatilePostgres(tb).NewDatabase(tb)
	case "mariadb":
		k.address = testenv.MariaDB(tb).NewDatabase(tb)
	case "postgres set back":
		server = testenv.PrivatePostgres(tb)
	case "mariadb set back":
		server = testenv.PrivateMariaDB(tb)
	}
	if server != nil {
		k.address = server.NewDatabase(tb)
	}
	k.plant()
	if server != nil {
		k.must(server.RestartAfter(tb.Context(), inDirectory(tb, "cp", "-a", "data", "saved")))
		k.restore = func() error {
			return server.RestartAfter(tb.Context(), inDirectory(tb, "sh", "-c", "rm -rf data && mv saved data"))
		}
	}
	return k
}

func inDirectory(tb testing.TB, command ...string) func(dir string) error {
	return func(dir string) error {
		cmd := exec.CommandContext(tb.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return cmd.Run()
	}
}

// plant creates the tables, with what was completed, or has failed, at its time.
func (k *killed) plant() {
	k.Helper()
	ctx := k.Context()
	store, err := stores.Open(ctx, k.address)
	k.must(err)
	defer store.Close()
	_, err = store.Migrate(ctx)
	k.must(err)
	k.must(store.Register(ctx, stores.Registration{Consumer: stock, Topic: "orders"}))
	k.admin, err = openAdmin(k.address)
	k.must(err)
	k.Cleanup(func() { _ = k.admin.Close() })
	k.exec(effectsTable)
	for hour := range plantedHours {
		outcome, err := deliver(ctx, store, fmt.Sprint(hour), time.Now())
		if k.must(err); outcome != stores.Claimed {
			k.Fatal(outcome)
		}
		ended := at(k.address, tookAt(hour).Add(time.Second))
		k.exec("UPDATE millpond_inbox SET completed_at = " + ended + " WHERE message_id = " + k.id(fmt.Sprint(hour)))
		if hour%deadHours > 0 {
			continue
		}
		_, err = store.Record(ctx, stores.Failure{
			Key:    stores.Key{Consumer: stock, ID: []byte(dead(hour))},
			Status: stores.StatusFailed, Placement: stores.PlacementParked, Attempts: 1, Class: stores.ClassPermanent,
			Topic: "orders", Content: &stores.Content{State: stores.ContentKept},
		})
		k.must(err)
		k.exec("UPDATE millpond_failure SET last_at = " + ended + " WHERE message_id = " + k.id(dead(hour)))
	}
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
	switch {
	case onPostgres(k.address):
		return "convert_to('" + id + "', 'UTF8')"
	case strings.HasPrefix(k.address, "sqlite://"):
		return "CAST('" + id + "' AS BLOB)"
	}
	return "'" + id + "'"
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
		if k.restore != nil {
			cmd.Env = append(cmd.Env, killedServer+"=set back")
		}
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
// was purged, after the backup was restored if there is one, and returns what is wrong in the end.
func (k *killed) hurt(deaths int, broken string) (wrong []string) {
	ctx, stop := context.WithTimeout(k.Context(), 3*time.Minute+time.Duration(deaths)*2*time.Second)
	defer stop()
	var all sync.WaitGroup
	lives := 8 * time.Second
	if strings.HasPrefix(k.address, "mysql://") || k.restore != nil {
		lives *= 3 // it waits for longer, or is to see both
	}
	for range 2 {
		all.Go(func() { k.process(ctx, "sweep", broken, lives) })
		all.Go(func() { k.process(ctx, "claim", broken, 3*time.Second) })
	}
	until := func(is func() bool) {
		for ctx.Err() == nil && !is() {
			<-time.After(50 * time.Millisecond)
		}
	}
	purged := func() bool { return len(k.lines("archive"))+len(k.lines("deleted")) > 0 }
	if until(purged); k.restore != nil {
		k.must(k.restore())
		k.deaths.Store(0)
	}
	until(func() bool { return k.deaths.Load() >= int64(deaths) })
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
		Service: stock.Service, Windows: keptWindows, Logger: slog.New(slog.DiscardHandler),
		Archive: func(_ context.Context, rows []stores.PurgedRow) error {
			for _, r := range rows {
				k.must(note(k.dir, "archive", string(r.ID)))
			}
			return nil
		},
	})
	k.must(err)
	for range 2 {
		result, err := s.Pass(k.Context(), retention.Options{})
		k.must(err)
		if !slices.ContainsFunc(result.Found, func(r retention.Report) bool { return r.Kept != "" }) {
			return
		}
		// What was purged in part looks as if nothing had been completed, until an hour later.
		k.exec("UPDATE millpond_inbox SET completed_at = completed_at - " + k.hour() + " WHERE status = 2")
	}
}

func (k *killed) hour() string {
	if onPostgres(k.address) {
		return "interval '1 hour'"
	}
	return strconv.FormatInt(time.Hour.Microseconds(), 10)
}

// check compares what is committed: I1, an effect for each message; I7, nothing that is younger
// than the window is gone, and nothing of it runs again.
func (k *killed) check(whole bool) (wrong []string) {
	is := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, "message "+fmt.Sprintf(format, args...))
		}
	}
	effects, rows := make(map[string]int), make(map[string]bool)
	for _, id := range k.strings("SELECT id FROM effects") {
		effects[id]++
	}
	for _, id := range k.strings("SELECT message_id FROM millpond_inbox WHERE status = 2") {
		rows[id] = true
		is(effects[id] == 0, "%s is completed and has no effect", id)
	}
	failed := k.strings("SELECT message_id FROM millpond_inbox WHERE status = 4")
	for id, n := range maps.All(effects) {
		is(n != 1, "%s has %d effects", id, n)
	}
	archived := k.lines("archive")
	const kept = keptDays * 24
	for hour := range plantedHours {
		id := fmt.Sprint(hour)
		is(effects[id] == 0, "%s has lost its effect", id)
		is(hour < kept-1 && !rows[id], "%s is younger than the window, and purged", id)
		is(hour > kept && rows[id] && whole, "%s is older than the window, and not purged", id)
		is(!rows[id] && !slices.Contains(archived, id), "%s is not in the archive", id)
		if id = dead(hour); hour%deadHours > 0 {
			continue
		}
		left := slices.Contains(failed, id)
		is(hour < kept-1 && !left, "%s is younger than the window, and purged", id)
		is(hour > kept && left && whole, "%s is older than the window, and not purged", id)
		is(left && effects[id] > 0, "%s has failed, and has an effect", id)
		is(!left && !slices.Contains(archived, id), "%s is not in the archive", id)
	}
	for _, id := range k.lines("stale") {
		of, _, _ := strings.Cut(id, " ") // the hour, if it is old
		hour, err := strconv.Atoi(of)
		is(id != "" && (err != nil || hour < kept-1), "%s is younger than the window, and stale", id)
	}
	slices.Sort(wrong)
	return wrong
}

// Sweepers and claimers die at every step, the archive fails, clocks have jumped, offsets are
// reset, what has failed is redriven, old events are filled in, and an old backup is restored:
// each message has one effect, and nothing goes before its time. With MILLPOND_SOAK=n this
// goes on until n processes have died on each store.
func TestKilledSweepers(t *testing.T) {
	t.Parallel()
	deaths := 12
	if n, err := strconv.Atoi(os.Getenv(rotation.SoakVariable)); err == nil {
		deaths = max(n, deaths)
	}
	for _, system := range rotation.Turn(t, 1, "mariadb", "mariadb set back", "postgres", "postgres set back", "sqlite") {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			deaths := deaths
			if strings.HasSuffix(system, "set back") && !rotation.Soak() {
				deaths /= 2 // each of them takes seconds until the copy has taken over
			}
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
				wrong := strings.Join(killedOn(t, brokenSweepers[name].on).hurt(8, name), "\n")
				if strings.Contains(wrong, brokenSweepers[name].wrong) {
					t.Logf("%.200s", wrong)
					return
				}
			}
			t.Error("nothing is wrong")
		})
	}
}
