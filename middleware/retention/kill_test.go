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
	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
)

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
	store, err := stores.Open(ctx, k.address)
	k.must(err)
	defer store.Close()
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
		<-time.After(50 * time.Millisecond)
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
