package retention_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// failed records a failed message.
func failed(t *testing.T, store *sqlite.Store, id string, status stores.Status) stores.Key {
	t.Helper()
	key := stores.Key{Consumer: stock, ID: []byte(id)}
	if _, err := store.Record(t.Context(), stores.Failure{
		Key: key, Status: status, Placement: stores.PlacementParked, Class: stores.ClassTransient, Error: "refused", Topic: "orders",
		Content: &stores.Content{State: stores.ContentKept, Payload: []byte("x")},
	}); err != nil {
		t.Fatal(err)
	}
	return key
}

// held puts a message into quarantine, and releases it if it is to be.
func held(t *testing.T, store *sqlite.Store, id string, release bool) (row int64) {
	t.Helper()
	q := stores.Quarantined{Consumer: stock, ID: []byte(id), Reason: stores.ReasonConflict, Topic: "orders", Payload: []byte("x")}
	if err := store.Quarantine(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	rows, err := store.Quarantined(t.Context(), stores.QuarantineQuery{ID: []byte(id), Limit: 1})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if release {
		if err := store.Decide(t.Context(), stores.Decision{Verb: stores.VerbRelease, RowID: rows[0].RowID}); err != nil {
			t.Fatal(err)
		}
	}
	return rows[0].RowID
}

func erase(t *testing.T, store stores.Inspector, e retention.Erasure) (lines []string) {
	t.Helper()
	places, err := retention.Erase(t.Context(), store, e)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		if p.Erased+p.Waiting+p.Busy > 0 {
			lines = append(lines, fmt.Sprint(p.Place, " ", p.Erased, " ", p.Waiting, " ", p.Busy))
		}
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Whatever still waits stays, unless it is asked for, and what was released goes with its row.
func TestEraseLeavesWorkAlone(t *testing.T) {
	t.Parallel()
	store := aged(t)
	for i := range 3 {
		failed(t, store, fmt.Sprint("failed ", i), stores.StatusFailed)
	}
	failed(t, store, "pending", stores.StatusPending)
	held(t, store, "held", false)
	released := held(t, store, "released", true)
	all := retention.Erasure{Service: stock.Service, Topic: "orders", Actor: "ada"}
	dry := all
	dry.DryRun = true
	wantLines(t, "a dry run", erase(t, store, dry), "quarantine 0 2 0", "messages 3 2 0")
	var progress []int
	all.Progress = func(n int) { progress = append(progress, n) }
	wantLines(t, "erased", erase(t, store, all), "quarantine 0 2 0", "messages 3 2 0")
	wantLines(t, "again", erase(t, store, all), "quarantine 0 2 0", "messages 0 2 0")
	if progress[0] != 3 {
		t.Errorf("the progress was %v", progress)
	}
	all.Unfinished = true
	wantLines(t, "all of it", erase(t, store, all), "quarantine 3 0 0", "messages 1 0 0")
	m, err := store.Find(t.Context(), stores.Key{Consumer: stock, ID: stores.ReleasedID(released)})
	if err != nil || m.Content != stores.ContentErased {
		t.Errorf("what was released is %+v, %v", m, err)
	}
	if due, err := store.Due(t.Context(), stores.DueQuery{Consumer: stock, Limit: 10, Reserve: time.Minute}); err != nil || len(due) > 0 {
		t.Errorf("%d messages are due, %v", len(due), err)
	}
}

// An archive has what was purged: it is told first, and nothing is erased that it cannot forget.
func TestEraseTellsTheArchiveFirst(t *testing.T) {
	t.Parallel()
	store := aged(t)
	key := failed(t, store, "a", stores.StatusFailed)
	down := errors.New("the bucket cannot be reached")
	told := 0
	e := retention.Erasure{ID: key.ID, Archive: func(_ context.Context, e retention.Erasure) error {
		told++
		if string(e.ID) != "a" {
			t.Errorf("the archive is told of %+v", e)
		}
		return down
	}}
	if places, err := retention.Erase(t.Context(), store, e); !errors.Is(err, stores.ErrArchive) || !errors.Is(err, down) || len(places) > 0 {
		t.Errorf("%v, %v", places, err)
	}
	if m, err := store.Find(t.Context(), key); err != nil || m.Content != stores.ContentKept {
		t.Errorf("the message is %+v, %v", m, err)
	}
	e.DryRun = true
	wantLines(t, "a dry run", erase(t, store, e), "messages 1 0 0")
	if told != 1 {
		t.Errorf("the archive was told %d times", told)
	}
}

// releasing is a store in which somebody releases what an erasure has just listed.
type releasing struct {
	*sqlite.Store
	once sync.Once
}

func (r *releasing) Quarantined(ctx context.Context, q stores.QuarantineQuery) ([]stores.QuarantineRow, error) {
	rows, err := r.Store.Quarantined(ctx, q)
	if err == nil && len(rows) > 0 {
		r.once.Do(func() { err = r.Decide(ctx, stores.Decision{Verb: stores.VerbRelease, RowID: rows[0].RowID}) })
	}
	return rows, err
}

// The row leads to the message that runs: it is not erased before that one is.
func TestWhatIsReleasedMeanwhileIsErasedAsWell(t *testing.T) {
	t.Parallel()
	store := aged(t)
	row := held(t, store, "held", false)
	e := retention.Erasure{ID: []byte("held"), Unfinished: true}
	wantLines(t, "released meanwhile", erase(t, &releasing{Store: store}, e), "quarantine 2 0 1")
	erase(t, store, e)
	m, err := store.Find(t.Context(), stores.Key{Consumer: stock, ID: stores.ReleasedID(row)})
	if err != nil || m.Content != stores.ContentErased {
		t.Errorf("what was released is %+v, %v", m, err)
	}
	if due, err := store.Due(t.Context(), stores.DueQuery{Consumer: stock, Limit: 10, Reserve: time.Minute}); err != nil || len(due) > 0 {
		t.Errorf("%d messages are due, %v", len(due), err)
	}
}

func TestEraseSelectsSomething(t *testing.T) {
	t.Parallel()
	for _, e := range []retention.Erasure{{}, {Unfinished: true, Actor: "ada", Reason: "all"}} {
		if _, err := retention.Erase(t.Context(), nil, e); !errors.Is(err, retention.ErrNoSelection) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	store := aged(t)
	failed(t, store, "a", stores.StatusFailed)
	wantLines(t, "an id of the outbox", erase(t, store, retention.Erasure{OutputID: "a"}))
}
