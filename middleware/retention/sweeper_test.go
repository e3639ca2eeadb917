package retention_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// agesOfFive: two of them are older than seven days, and nothing stood still just after them.
var agesOfFive = []time.Duration{0, 24*time.Hour + time.Minute, 7*day - time.Hour, 7*day + time.Hour, 9 * day}

// aged is a store whose consumer has completed messages so long ago.
func aged(t *testing.T, ages ...time.Duration) *sqlite.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aged.db")
	store, err := sqlite.Open(t.Context(), "sqlite://"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Register(t.Context(), stores.Registration{Consumer: stock, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	for i := range ages {
		attempt, _, err := store.Begin(t.Context(), stores.Claim{Key: stores.Key{Consumer: stock, ID: fmt.Appendf(nil, "%d", i)}})
		if err == nil {
			err = attempt.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, age := range ages {
		if _, err := db.ExecContext(t.Context(), "UPDATE millpond_inbox SET completed_at = completed_at - ? WHERE message_id = ?", age.Microseconds(), fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func rows(t *testing.T, store *sqlite.Store) (n int) {
	t.Helper()
	for i := range 20 {
		_, err := store.Find(t.Context(), stores.Key{Consumer: stock, ID: fmt.Appendf(nil, "%d", i)})
		switch {
		case err == nil:
			n++
		case !errors.Is(err, stores.ErrNotFound):
			t.Fatal(err)
		}
	}
	return n
}

type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), text)
}

// Of two sweepers of a service one sweeps, and the other takes over when that has stopped.
func TestOneOfTwoSweeps(t *testing.T) {
	t.Parallel()
	store := aged(t, agesOfFive...)
	var (
		log   lines
		both  sync.WaitGroup
		stops []context.CancelFunc
	)
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		stops = append(stops, stop)
		s, err := retention.New(store, retention.Config{
			Service: "inventory", Windows: retention.Windows{Window: 7 * day}, Every: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		both.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); rows(t, store) > 3; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is purged")
		}
	}
	for _, stop := range stops {
		stop()
	}
	both.Wait()
	if n := log.count("rows are purged"); n != 1 || rows(t, store) != 3 {
		t.Errorf("%d passes have purged, %d rows are left", n, rows(t, store))
	}
	leased, err := store.Lease(t.Context(), stores.LeaseRequest{Name: "retention/inventory", Owner: "next", Units: []int64{0}, Limit: 1, TTL: time.Minute})
	if err != nil || len(leased.Units) != 1 {
		t.Errorf("the lease was not given back: %+v, %v", leased, err)
	}
}

// A service that is new has handlers without rows: nothing is kept, and nothing is said about it.
func TestConsumersWithoutRowsAreNotLogged(t *testing.T) {
	t.Parallel()
	store := aged(t, 2*day)
	none := stores.Consumer{Service: stock.Service, Handler: "none"}
	if err := store.Register(t.Context(), stores.Registration{Consumer: none, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	var log lines
	s, err := retention.New(store, retention.Config{
		Service: stock.Service, Windows: retention.Windows{Window: 7 * day}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for log.count("consumer="+stock.String()) == 0 && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if kept, silent := log.count("the reason for keeping rows has changed"), log.count("consumer="+none.String()); kept != 1 || silent != 0 {
		t.Errorf("%d lines, %d of the consumer without rows", kept, silent)
	}
}

// A process that dies between two steps leaves nothing that another one's pass does not heal,
// and no message that was purged runs again.
func TestDeathBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"survey", "announce", "overtaken", "purge"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			store := aged(t, agesOfFive...)
			c := retention.Config{Service: "inventory", Windows: retention.Windows{Window: 7 * day}, Logger: slog.New(slog.DiscardHandler)}
			dying, err := retention.New(dies{store, step}, c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := dying.Pass(t.Context(), retention.Options{}); !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			next, err := retention.New(store, c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := next.Pass(t.Context(), retention.Options{}); err != nil || rows(t, store) != 3 {
				t.Errorf("%v, %d rows are left", err, rows(t, store))
			}
			_, v, err := store.Begin(t.Context(), stores.Claim{Key: stores.Key{Consumer: stock, ID: []byte("3")}, Time: time.Now().Add(-9*day - time.Minute)})
			if err != nil || v.Outcome != stores.Stale {
				t.Errorf("what was purged is %s, %v", v.Outcome, err)
			}
		})
	}
}

var errDied = errors.New("the process has died")

// dies is a store whose process dies at a step, after it was carried out.
type dies struct {
	*sqlite.Store
	at string
}

func (d dies) after(step string, err error) error {
	if d.at == step {
		return errDied
	}
	return err
}

func (d dies) Survey(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	r, err := d.Store.Survey(ctx, q)
	return r, d.after("survey", err)
}

func (d dies) Announce(ctx context.Context, c stores.Consumer, through time.Time) error {
	return d.after("announce", d.Store.Announce(ctx, c, through))
}

func (d dies) Overtaken(ctx context.Context, mark string) (string, bool, error) {
	next, over, err := d.Store.Overtaken(ctx, mark)
	return next, over, d.after("overtaken", err)
}

func (d dies) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	r, err := d.Store.Purge(ctx, q)
	return r, d.after("purge", err)
}

// What is deleted is in the archive before, line by line.
func TestArchiveHasWhatIsGone(t *testing.T) {
	t.Parallel()
	store := aged(t, agesOfFive...)
	var file bytes.Buffer
	s, err := retention.New(store, retention.Config{
		Service: "inventory", Windows: retention.Windows{Window: 7 * day}, Archive: archive(&file), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pass(t.Context(), retention.Options{}); err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for lines := json.NewDecoder(unzipped); lines.More(); {
		var row stores.PurgedRow
		if err := lines.Decode(&row); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(row.ID))
		if row.Kind != stores.PurgeCompleted || row.Consumer != stock || row.Time.IsZero() {
			t.Errorf("%+v", row)
		}
	}
	if fmt.Sprint(ids) != "[3 4]" || rows(t, store) != 3 {
		t.Errorf("the archive has %v, %d rows are left", ids, rows(t, store))
	}
}
