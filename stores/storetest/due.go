package storetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func dueChecks() []check {
	return []check{
		{name: "what is due", run: dueOnly},
		{name: "the whole message", run: dueWhole},
		{name: "longest first, up to the limit", run: dueInOrder},
		{name: "longest first, up to the bytes", run: dueUpToBytes},
		{name: "reserves", run: dueReserves},
		{name: "renews reservations", run: dueRenews},
		{name: "lapsed reservations are suspect", run: dueLapsed},
		{name: "suspicion lasts until an attempt is recorded", run: suspicionLasts},
		{name: "release", run: dueRelease},
		{name: "a version that is another message's", run: dueOfAnother},
		{name: "by the database's clock", run: dueByClock},
		{name: "once, of many", run: func(b *bench) { dueRace(b, b.open()) }},
		{name: "once, of many in two processes", run: func(b *bench) { dueRace(b, b.open(), b.open()) }},
		{name: "messages in flight are passed by", run: dueInFlight},
		{name: "one unreadable row", run: dueUnreadable},
		{name: "backlog", run: backlog},
	}
}

func dueOnly(b *bench) {
	store := b.open()
	b.register(store, another)
	b.wantDue(store)
	b.stand(store)
	theirs := failureOf(claimFor("theirs", "payload"))
	theirs.Key.Consumer = another
	b.record(store, theirs)
	before := b.failures()
	b.wantDue(store, "parked")
	for i, f := range b.failures() {
		if id := string(f.key.ID); f.version != before[i].version && id != "parked" {
			b.tb.Errorf("Due has changed %q, which it did not return", id)
		}
	}
	b.wantDue(store)
	b.paired()
}

func dueWhole(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("whole \x00\xff", "payload")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	claim.OrderKey = []byte("order \x00\xff")
	f := failureOf(claim)
	f.Attempts, f.Uncounted, f.Class = 3, 2, stores.ClassTimeout
	b.record(here, f)
	due := b.wantDue(elsewhere, "whole \x00\xff")
	if len(due) != 1 {
		return
	}
	r := due[0]
	if r.Key.Consumer != consumer || r.Fingerprint != claim.Fingerprint || r.TraceParent != claim.TraceParent ||
		r.LastError != f.Error || r.Cause != f.Cause || r.Topic != f.Topic || r.Coordinates != f.Coordinates || !bytes.Equal(r.OrderKey, f.OrderKey) {
		b.tb.Errorf("Due returned %+v, want what was recorded, %+v", r, f)
	}
	b.sameContent("a message that is due", r.Content, *f.Content)
	s := r.State
	if s.DueIn < reserve-time.Minute || s.DueIn > reserve || s.Age < 0 || s.Age > time.Minute {
		b.tb.Errorf("a message reserved for %s is due in %s at the age of %s", reserve, s.DueIn, s.Age)
	}
	s.DueIn, s.Age = 0, 0
	want := stores.FailureState{
		Version: b.failure(string(r.Key.ID)).version, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Content: stores.ContentKept, Class: f.Class, Attempts: 3, Uncounted: 2,
	}
	if s != want || r.Suspect || r.Err != nil {
		b.tb.Errorf("Due returned the state %+v, suspect %t, error %v, want %+v", s, r.Suspect, r.Err, want)
	}
}

func dueInOrder(b *bench) {
	store := b.open()
	const step = 20 * time.Millisecond
	for _, place := range []int{4, 2, 5, 1, 3} {
		b.fails(store, fmt.Sprint("message ", place), func(f *stores.Failure) { f.DueIn = time.Duration(place) * step })
	}
	var all []string
	b.query("SELECT message_id FROM millpond_failure ORDER BY due_at", func(rows *sql.Rows) error {
		var id []byte
		err := rows.Scan(&id)
		all = append(all, string(id))
		return err
	})
	if !poll(b.ctx, patience, func() bool {
		return !slices.ContainsFunc(all, func(id string) bool { return b.look(store, claimFor(id, id), stores.Parked).Failure.DueIn > 0 })
	}) {
		b.tb.Fatalf("the messages are not due")
	}
	for _, want := range [][]string{all[:2], all[2:4], all[4:], {}} {
		if got := idsOf(b.due(store, 2)); !slices.Equal(got, want) {
			b.tb.Errorf("due are %q, want %q: those that have waited longest, in order", got, want)
		}
	}
}

// dueUpToBytes: a large message is returned alone, whatever the limit, and what waits for
// others takes no room.
func dueUpToBytes(b *bench) {
	store := b.open()
	const kilobyte = 1 << 10
	if !store.Capabilities().Unordered {
		b.parks(store, "first", "order", func(f *stores.Failure) { f.DueIn = later })
		b.parks(store, "waits", "order", func(f *stores.Failure) {
			f.DueIn, f.Content.Payload = -time.Hour, make([]byte, 20*kilobyte)
		})
	}
	for i, change := range []func(*stores.Content){
		func(c *stores.Content) { c.Payload = make([]byte, 20*kilobyte) },
		func(c *stores.Content) { c.Payload = make([]byte, 4*kilobyte) },
		func(c *stores.Content) { c.Metadata = map[string]string{"large": strings.Repeat("m", 4*kilobyte)} },
		func(c *stores.Content) { c.Facts.Key = make([]byte, 4*kilobyte) },
		func(c *stores.Content) { c.Payload = make([]byte, 4*kilobyte) },
	} {
		b.fails(store, fmt.Sprint("message ", i), func(f *stores.Failure) {
			f.DueIn = time.Duration(i-60) * time.Minute
			f.Content.Payload, f.Content.Metadata, f.Content.Facts = nil, nil, stores.Facts{}
			change(f.Content)
		})
	}
	for _, want := range [][]string{{"message 0"}, {"message 1", "message 2"}, {"message 3", "message 4"}, {}} {
		due, err := store.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: reserve, MaxBytes: 11 * kilobyte})
		if got := idsOf(due); err != nil || !slices.Equal(got, want) {
			b.tb.Errorf("with a limit of %d bytes due are %q, %v, want %q", 11*kilobyte, got, err, want)
		}
		if len(want) == 1 && b.failure("message 1").reserved {
			b.tb.Errorf("a message is reserved that was not returned")
		}
	}
	b.paired()
}

func dueReserves(b *bench) {
	here, elsewhere := b.open(), b.open()
	before := b.fails(here, "reserved")
	due := b.wantDue(here, "reserved")
	for _, store := range []stores.Store{here, elsewhere} {
		b.wantDue(store)
		b.expect(store, claimFor("reserved", "reserved"), stores.Parked)
		old := claimFor("reserved", "reserved")
		old.Take = before
		b.expect(store, old, stores.Parked)
	}
	for _, r := range due {
		f := failureOf(claimFor("reserved", "reserved"))
		f.Version = before
		b.refuses(elsewhere, f, false, "Record in the version before the reservation")
		f.Version = r.State.Version
		f.Version = b.record(here, f) // it has failed again
		if got := b.failure("reserved"); got.reserved {
			b.tb.Errorf("a message that has failed again is still reserved")
		}
	}
	for _, r := range b.wantDue(elsewhere, "reserved") {
		if r.Suspect {
			b.tb.Errorf("a message that was recorded after its reservation is suspect")
		}
		b.commit(b.take(elsewhere, claimOf(r), r.State.Version))
	}
	b.paired()
}

func dueLapsed(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.fails(here, "lapsed")
	const short = 50 * time.Millisecond
	due, err := here.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: short})
	if err != nil || len(due) != 1 || due[0].Suspect {
		b.tb.Fatalf("Due = %+v, %v, want one message", due, err)
	}
	first := due[0]
	if !poll(b.ctx, patience, func() bool {
		due = b.due(elsewhere, 10)
		return len(due) > 0
	}) {
		b.tb.Fatalf("a message that was reserved for %s is not due again", short)
	}
	if !due[0].Suspect || due[0].State.Version == first.State.Version {
		b.tb.Errorf("a message whose reservation ran out is suspect %t in version %d, it was in %d before", due[0].Suspect, due[0].State.Version, first.State.Version)
	}
	b.expect(here, claimOf(first), stores.Parked) // it belongs to another worker now
	b.commit(b.take(elsewhere, claimOf(due[0]), due[0].State.Version))
	b.expect(here, claimOf(first), stores.Duplicate)
}

func dueRenews(b *bench) {
	here, elsewhere := b.open(), b.open()
	for _, id := range []string{"kept", "lost", "failed"} {
		b.fails(here, id)
	}
	due, err := here.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: 50 * time.Millisecond})
	if err != nil || len(due) != 3 {
		b.tb.Fatalf("Due = %+v, %v, want three messages", due, err)
	}
	by := make(map[string]stores.Retry)
	for _, r := range due {
		by[string(r.Key.ID)] = r
	}
	var others []stores.Retry
	if err := here.Renew(b.ctx, []stores.Retry{by["kept"]}, reserve); err != nil {
		b.tb.Fatalf("Renew: %v", err)
	}
	if !poll(b.ctx, patience, func() bool {
		more, _ := elsewhere.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: time.Hour})
		others = append(others, more...)
		return len(others) >= 2
	}) || len(others) != 2 {
		b.tb.Fatalf("%d messages were due elsewhere, want the two whose reservation was not renewed", len(others))
	}
	f := failureOf(claimFor("failed", "failed"))
	for _, r := range others {
		if string(r.Key.ID) == "failed" {
			f.Version = r.State.Version
		}
	}
	b.record(elsewhere, changed(f, func(f *stores.Failure) { f.DueIn = time.Minute }))
	if err := here.Renew(b.ctx, due, 2*time.Hour); err != nil { // too late for two of them
		b.tb.Errorf("Renew: %v", err)
	}
	for id, most := range map[string]time.Duration{"kept": 2 * time.Hour, "lost": time.Hour, "failed": time.Minute} {
		if in := b.look(here, claimFor(id, id), stores.Parked).Failure.DueIn; in > most || in < most/2 {
			b.tb.Errorf("%q is due in %s, want %s", id, in, most)
		}
	}
	kept := by["kept"]
	b.commit(b.take(here, claimOf(kept), kept.State.Version)) // Renew leaves the version as it is
	if err := here.Renew(b.ctx, []stores.Retry{kept}, time.Hour); err != nil {
		b.tb.Errorf("Renew of a completed message: %v", err)
	}
	b.expect(elsewhere, claimFor("kept", "kept"), stores.Duplicate)
	b.paired()
}

// suspicionLasts: what may have ended a process stays suspect when it is put off behind an
// earlier message, or given back unbegun.
func suspicionLasts(b *bench) {
	here, elsewhere := b.open(), b.open()
	if b.unordered(here) {
		return
	}
	b.parks(here, "earlier", "order", settledFor)
	b.parks(here, "suspect", "order")
	due, err := here.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: 50 * time.Millisecond})
	if err != nil || len(due) != 1 {
		b.tb.Fatalf("Due = %+v, %v, want one message", due, err)
	}
	if !poll(b.ctx, patience, func() bool {
		return b.look(here, orderedClaim("suspect", "order"), stores.Parked).Failure.DueIn <= 0
	}) {
		b.tb.Fatalf("its reservation does not run out")
	}
	b.change(elsewhere, stores.VerbRetry, stores.Filter{ID: []byte("earlier")}, 1) // is the first again
	earlier := b.wantDue(elsewhere, "earlier")[0]
	b.commit(b.take(elsewhere, claimOf(earlier), earlier.State.Version))
	for _, what := range []string{"was put off", "was released"} {
		r := b.next(here)
		if string(r.Key.ID) != "suspect" || !r.Suspect {
			b.tb.Errorf("%s is due, suspect %t, after it %s", r.Key, r.Suspect, what)
		}
		if err := here.Release(b.ctx, []stores.Retry{r}); err != nil {
			b.tb.Errorf("Release: %v", err)
		}
	}
	r := b.next(elsewhere)
	f := failureOf(orderedClaim("suspect", "order"))
	f.Version, f.Content = r.State.Version, nil
	b.record(elsewhere, f)
	if r := b.next(here); r.Suspect {
		b.tb.Errorf("%s is suspect after its attempt was recorded", r.Key)
	}
	b.paired()
}

func dueRelease(b *bench) {
	here, elsewhere := b.open(), b.open()
	for _, id := range []string{"one", "two", "failed", "completed", "again"} {
		b.fails(here, id)
	}
	due := b.wantDue(here, "one", "two", "failed", "completed", "again")
	for _, r := range due {
		f := failureOf(claimFor(string(r.Key.ID), string(r.Key.ID)))
		f.Version = r.State.Version
		switch string(r.Key.ID) {
		case "failed":
			b.record(here, changed(f, settledFor))
		case "completed":
			b.commit(b.take(here, claimOf(r), r.State.Version))
		case "again":
			b.record(here, changed(f, func(f *stores.Failure) { f.DueIn = later }))
		}
	}
	if err := here.Release(b.ctx, due); err != nil {
		b.tb.Errorf("Release: %v", err)
	}
	released := b.wantDue(elsewhere, "one", "two")
	for _, r := range released {
		if r.Suspect {
			b.tb.Errorf("%s was released, and is suspect", r.Key)
		}
	}
	before := b.snapshot()
	if err := here.Release(b.ctx, due); err != nil { // they are others' by now
		b.tb.Errorf("Release: %v", err)
	}
	if err := here.Release(b.ctx, nil); err != nil {
		b.tb.Errorf("Release of nothing: %v", err)
	}
	b.unchanged(before, "Release of what has changed since")
	b.paired()
}

// dueByClock: the time of a process has no part in what is due.
func dueByClock(b *bench) {
	store := b.open()
	const soon = 700 * time.Millisecond
	begun := time.Now()
	b.fails(store, "soon", func(f *stores.Failure) { f.DueIn = soon })
	b.fails(store, "never", func(f *stores.Failure) { f.DueIn = 1 << 62 })
	b.fails(store, "long ago", func(f *stores.Failure) { f.DueIn = -1 << 62 })
	b.fails(store, "tomorrow", func(f *stores.Failure) { f.DueIn = 24 * time.Hour })
	if due := idsOf(b.due(store, 10)); time.Since(begun) < soon && !slices.Equal(due, []string{"long ago"}) {
		b.tb.Errorf("due are %q, want only what is due now", due)
	}
	var due []string
	poll(b.ctx, patience, func() bool {
		due = idsOf(b.due(store, 10))
		return len(due) > 0
	})
	// The two clocks may run apart a little.
	if took := time.Since(begun); !slices.Equal(due, []string{"soon"}) || took < soon-soon/10 {
		b.tb.Errorf("due are %q after %s, want what was to be due in %s", due, took, soon)
	}
}

// dueRace: many workers, and each message is given to one.
func dueRace(b *bench, open ...stores.Store) {
	const messages, workers, limit = 100, 8, 7
	for i := range messages {
		b.fails(open[0], fmt.Sprint("message ", i))
	}
	var mu sync.Mutex
	given := make(map[string]int)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			all := poll(b.ctx, patience, func() bool {
				var due []stores.Retry
				err := b.retry(func() (err error) {
					due, err = open[i%len(open)].Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: limit, Reserve: reserve})
					return err
				})
				if err != nil {
					b.tb.Errorf("Due: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, id := range idsOf(due) {
					given[id]++
				}
				return err != nil || len(given) == messages
			})
			if !all {
				b.tb.Errorf("not all messages were given out after %s", patience)
			}
		})
	}
	group.Wait()
	for id, n := range given {
		if n != 1 {
			b.tb.Errorf("%s was given to %d workers", id, n)
		}
	}
	if len(given) != messages {
		b.tb.Errorf("%d of %d messages were given to workers", len(given), messages)
	}
}

// dueInFlight asks while a due message is taken over. It may not be handed out, and
// nobody waits for its handler, but for the turn of a single writer.
func dueInFlight(b *bench) {
	here, elsewhere := b.open(), b.open()
	version := b.fails(here, "in flight")
	b.fails(here, "free")
	attempt := b.take(here, claimFor("in flight", "in flight"), version)
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
	single := here.Capabilities().SingleWriter
	open := []stores.Store{here, elsewhere}
	if here.Capabilities().ClaimsShared {
		open = open[:1]
	}
	for _, store := range open {
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		begun := time.Now()
		due, err := store.Due(ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: reserve})
		cancel()
		if err != nil && !(single && errors.Is(err, stores.ErrUnavailable)) {
			b.tb.Errorf("Due while a message is in flight: %v", err)
		}
		if took := time.Since(begun); took > promptly {
			b.tb.Errorf("Due while a message is in flight took %s", took)
		}
		if slices.Contains(idsOf(due), "in flight") {
			b.tb.Errorf("Due returned a message that is in flight")
		}
		if err := store.Release(b.ctx, due); err != nil {
			b.tb.Errorf("Release: %v", err)
		}
	}
	b.commit(attempt)
	b.wantDue(elsewhere, "free")
}

// dueUnreadable: a row that cannot be read is handed out with its error, and stops
// no other.
func dueUnreadable(b *bench) {
	store := b.open()
	ids := []string{"one", "broken", "two"}
	for _, id := range ids {
		b.fails(store, id, func(f *stores.Failure) { f.Content.Payload = []byte("{ no metadata") })
	}
	number := b.failure("broken").number
	b.exec(fmt.Sprintf("UPDATE millpond_failure SET metadata = payload WHERE number = %d", number))
	for _, r := range b.wantDue(store, ids...) {
		if id := string(r.Key.ID); (r.Err != nil) != (id == "broken") {
			b.tb.Errorf("%s: Due returned it with the error %v", id, r.Err)
		}
		if r.State.Version != b.failure(string(r.Key.ID)).version {
			b.tb.Errorf("%s: Due returned version %d, which the row does not have", r.Key, r.State.Version)
		}
	}
	m, err := store.Message(b.ctx, number)
	if err != nil || m.Unreadable == nil || string(m.Payload) != "{ no metadata" || m.Error == "" {
		b.tb.Errorf("Message of an unreadable row = %+v, %v, want what can be read", m, err)
	}
	if all, err := store.Messages(b.ctx, stores.MessageQuery{Limit: 10}); err != nil || len(all) != len(ids) {
		b.tb.Errorf("Messages with an unreadable row = %d, %v, want %d", len(all), err, len(ids))
	}
	f := failureOf(claimFor("broken", "broken"))
	f.Version, f.Content = b.failure("broken").version, nil
	b.record(store, changed(f, settledFor)) // a worker gives it up
}

func backlog(b *bench) {
	store := b.open()
	b.register(store, another)
	expect := func(limit int, want map[stores.Consumer]int) {
		b.tb.Helper()
		stranger := b.openOnly() // knows no consumer
		for _, s := range []stores.Store{store, stranger} {
			got := make(map[stores.Consumer]int)
			all, err := s.Backlog(b.ctx, limit)
			if err != nil {
				b.tb.Errorf("Backlog: %v", err)
			}
			for _, one := range all {
				got[one.Consumer] = one.Due
				if one.Oldest < 0 || one.Oldest > time.Minute {
					b.tb.Errorf("the oldest of %s has been due for %s", one.Consumer, one.Oldest)
				}
			}
			if len(all) != len(want) || fmt.Sprint(got) != fmt.Sprint(want) {
				b.tb.Errorf("Backlog(%d) = %v, want %v", limit, got, want)
			}
		}
	}
	expect(10, map[stores.Consumer]int{})
	b.stand(store) // of which one is parked and due
	for i := range 5 {
		f := failureOf(claimFor(fmt.Sprint("theirs ", i), "payload"))
		f.Key.Consumer = another
		b.record(store, f)
	}
	expect(10, map[stores.Consumer]int{consumer: 1, another: 5})
	expect(3, map[stores.Consumer]int{consumer: 1, another: 3})
	b.wantDue(store, "parked")
	expect(10, map[stores.Consumer]int{another: 5})
}
