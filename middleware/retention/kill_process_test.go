//go:build unix

package retention_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A sweeper, or a claimer, in a process of its own is told by these what to do.
const (
	killedStore  = "MILLPOND_TEST_SWEEP_STORE"
	killedRole   = "MILLPOND_TEST_SWEEP_ROLE" // sweep or claim
	killedDir    = "MILLPOND_TEST_SWEEP_DIR"  // for what it writes down
	killedBroken = "MILLPOND_TEST_SWEEP_BROKEN"
	killedServer = "MILLPOND_TEST_SWEEP_SERVER" // not empty: it goes away, and is set back
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

// plantedHours is how many messages were completed, one in each hour until now, of which each
// deadHours-th also had one that failed for good. effectsTable has what handlers have done.
const (
	plantedHours = 240
	deadHours    = 8
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
	store, err := openStore(address)
	if err != nil {
		return err
	}
	target := retention.Store(mortal{store.(retention.Store), dir, rand.N(8) == 0})
	if broken, ok := brokenSweepers[os.Getenv(killedBroken)]; ok {
		target = broken.wrap(target, address)
	}
	s, err := retention.New(target, retention.Config{
		Service: stock.Service, Windows: keptWindows, Rate: 1 << 20, Logger: slog.New(slog.DiscardHandler),
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
		if errors.Is(err, retention.ErrClocks) || errors.Is(err, stores.ErrArchive) || errors.Is(err, stores.ErrUnavailable) || err != nil && serverGoesAway() {
			err = note(dir, "deaths", "refused: "+strings.SplitN(err.Error(), ":", 3)[1])
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// keptWindows are those of the sweepers.
var keptWindows = retention.Windows{Window: keptDays * day, Failed: keptDays * day}

func serverGoesAway() bool { return os.Getenv(killedServer) != "" }

func openStore(address string) (store stores.Store, err error) {
	for {
		if store, err = stores.Open(context.Background(), address); err == nil || !serverGoesAway() {
			return store, err
		}
		<-time.After(50 * time.Millisecond)
	}
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

// Overtaken waits for some seconds on MySQL, not for a minute: none of the claims takes as long.
func (m mortal) Overtaken(ctx context.Context, mark string) (string, bool, error) {
	next, over, err := m.Store.Overtaken(ctx, mark)
	if since, no := strconv.ParseInt(next, 10, 64); no == nil && mark == "" {
		next = strconv.FormatInt(since-(53*time.Second).Microseconds(), 10)
	}
	return next, over, err
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

// claims delivers what was completed long ago, as after a reset of offsets, what has failed and
// is redriven, a backfill, and what is new, and has effects where a claim is won. The parent kills
// it at any moment.
func claims(address, dir string) error {
	ctx := context.Background()
	store, err := openStore(address)
	if err != nil {
		return err
	}
	if err := store.Register(ctx, stores.Registration{Consumer: stock, Topic: "orders"}); err != nil && !serverGoesAway() {
		return err
	}
	var fresh []string
	for n := 0; ; n++ {
		id, took := arrives(n, &fresh)
		outcome, err := deliver(ctx, store, id, took)
		switch {
		case errors.Is(err, stores.ErrUnavailable):
			err = nil
		case err != nil && serverGoesAway():
			err = note(dir, "refused", err.Error())
		case err != nil:
			return fmt.Errorf("%s: %w", id, err)
		case outcome == stores.Stale:
			err = note(dir, "stale", id)
		}
		if err != nil {
			return err
		}
	}
}

// arrives draws a message, and when its broker took it, which not all brokers tell.
func arrives(n int, fresh *[]string) (id string, took time.Time) {
	hour := rand.N(plantedHours)
	switch rand.N(12) {
	case 0: // a redrive that gives a new time
		return dead(hour), time.Now()
	case 1: // and one that does not
		return dead(hour), tookAt(hour)
	case 2: // a backfill with event times
		return fmt.Sprint(hour/deadHours*deadHours, " filled in"), tookAt(hour)
	case 3: // no time, and the window is longer than the topic keeps messages
		return fmt.Sprint(rand.N(keptDays*24 - 2)), time.Time{}
	case 4, 5:
		if len(*fresh) > 0 {
			return (*fresh)[rand.N(len(*fresh))], time.Now()
		}
		fallthrough
	case 6, 7:
		id = fmt.Sprintf("new %d %d", os.Getpid(), n)
		*fresh = append(*fresh, id)
		return id, time.Now()
	}
	return fmt.Sprint(hour), tookAt(hour)
}

// dead is the message of about an hour that has failed for good.
func dead(hour int) string { return fmt.Sprint(hour/deadHours*deadHours, " dead") }

func deliver(ctx context.Context, store stores.Store, id string, took time.Time) (stores.Outcome, error) {
	attempt, v, err := store.Begin(ctx, stores.Claim{Key: stores.Key{Consumer: stock, ID: []byte(id)}, Time: took, Bound: time.Minute})
	if err != nil || v.Outcome != stores.Claimed {
		return v.Outcome, err
	}
	const insert = "INSERT INTO effects VALUES "
	handler := attempt.Context(ctx)
	if tx, ok := sqlite.TxFromContext(handler); ok {
		_, err = tx.ExecContext(ctx, insert+"(?)", id)
	} else if tx, ok := mysql.TxFromContext(handler); ok {
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
	on    string
	wrap  func(s retention.Store, address string) retention.Store
	wrong string
}{
	"nothing is announced": {"sqlite", func(s retention.Store, address string) retention.Store {
		return &silent{Store: s, address: address}
	}, "has 2 effects"},
	"by a process's clock": {"sqlite", func(s retention.Store, _ string) retention.Store { return ahead{s} }, "is younger than the window, and purged"},
	"what was announced is remembered": {"postgres set back", func(s retention.Store, address string) retention.Store {
		return &remembers{silent: silent{Store: s, address: address}}
	}, "has 2 effects"},
}

// remembers announces nothing twice, whatever has become of the database.
type remembers struct {
	silent
	announced time.Time
}

func (r *remembers) Announce(ctx context.Context, c stores.Consumer, through time.Time) error {
	if !through.After(r.announced) {
		return nil
	}
	err := r.Store.Announce(ctx, c, through)
	if err == nil {
		r.announced = through
	}
	return err
}

// silent deletes what was never announced.
type silent struct {
	retention.Store
	address string
}

func (*silent) Announce(context.Context, stores.Consumer, time.Time) error { return nil }

func (s *silent) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	db, err := openAdmin(s.address)
	if err != nil || len(q.Limits) == 0 || q.Kind != stores.PurgeCompleted {
		return stores.PurgeRange{}, err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "DELETE FROM millpond_inbox WHERE status = 2 AND completed_at <= "+at(s.address, q.Limits[0].Before))
	return stores.PurgeRange{}, errors.Join(err, note(s.Store.(mortal).dir, "deleted", "all"))
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
