package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

func orderChecks() []check {
	return []check{
		{name: "behind an earlier message", run: behind},
		{name: "a message's own row comes first", run: behindItself},
		{name: "order keys byte by byte", run: orderKeys},
		{name: "followers come one after the other", run: followers},
		{name: "a head that ends lets go", run: headEnds},
		{name: "one that has begun is not woken", run: begunInOrder},
		{name: "many followers hide nobody", run: manyFollowers},
		{name: "a message the broker has lost lets go", run: lostByTheBroker},
		{name: "retried without content", run: retriedWithoutContent},
		{name: "the age of one that waited", run: ageBegins},
		{name: "workers and deliveries at once", run: orderRace},
	}
}

func orderedClaim(id, orderKey string) stores.Claim {
	claim := claimFor(id, id)
	claim.OrderKey = []byte(orderKey)
	return claim
}

// parks records a failure of a message with an order key.
func (b *bench) parks(store stores.Failures, id, orderKey string, changes ...func(*stores.Failure)) (version int64) {
	b.tb.Helper()
	f := failureOf(orderedClaim(id, orderKey))
	for _, change := range changes {
		change(&f)
	}
	return b.record(store, f)
}

func behind(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.register(here, another)
	b.register(elsewhere, another)
	b.complete(here, orderedClaim("earlier", "order"))
	version := b.parks(here, "head", "order", func(f *stores.Failure) { f.DueIn = later })
	before := b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		b.expect(store, orderedClaim("next", "order"), stores.Behind)
		b.expect(store, orderedClaim("earlier", "order"), stores.Duplicate)
		b.look(store, orderedClaim("next", "order"), stores.Claimable)
		b.rollback(b.win(store, claimFor("next", "next"))) // it has none
		b.rollback(b.win(store, orderedClaim("next", "another order")))
		theirs := orderedClaim("next", "order")
		theirs.Key.Consumer = another
		b.rollback(b.win(store, theirs))
	}
	b.unchanged(before, "claims behind a failed message")
	b.commit(b.take(here, orderedClaim("head", "order"), version)) // its own order key is not looked at
	b.complete(elsewhere, orderedClaim("next", "order"))

	// One that the broker keeps is pending like any other.
	version = b.parks(here, "second head", "order", redelivered)
	b.expect(elsewhere, orderedClaim("after next", "order"), stores.Behind)
	b.commit(b.take(here, orderedClaim("second head", "order"), version))
	b.complete(elsewhere, orderedClaim("after next", "order"))
	b.paired()
}

func behindItself(b *bench) {
	store := b.open()
	b.complete(store, orderedClaim("completed", "order"))
	b.parks(store, "failed", "order", settledFor)
	b.parks(store, "head", "order", func(f *stores.Failure) { f.DueIn = later })
	b.parks(store, "follower", "order")
	b.parks(store, "redelivered later", "order", redelivered, func(f *stores.Failure) { f.DueIn = later })
	before := b.snapshot()
	b.expect(store, orderedClaim("completed", "order"), stores.Duplicate)
	b.expect(store, orderedClaim("failed", "order"), stores.Final)
	b.expect(store, orderedClaim("head", "order"), stores.Parked)
	b.expect(store, orderedClaim("follower", "order"), stores.Parked)
	b.expect(store, orderedClaim("redelivered later", "order"), stores.Deferred)
	other := orderedClaim("follower", "order")
	other.Fingerprint = stores.NewFingerprint(stores.FingerprintKey{}, []byte("another payload"))
	b.expect(store, other, stores.Conflict)
	b.unchanged(before, "claims of messages with rows of their own")
}

func orderKeys(b *bench) {
	store := b.open()
	keys := []string{"a", "A", "a ", "a\x00", "a\xff", "\x00", "\xff", "caf\u00e9", "cafe\u0301", "'; --", "$1", strings.Repeat("k", 500)}
	for i, key := range keys {
		b.rollback(b.win(store, orderedClaim("next", key)))
		b.parks(store, fmt.Sprint("head ", i), key, func(f *stores.Failure) { f.DueIn = later })
		b.expect(store, orderedClaim("next", key), stores.Behind)
		if got := b.failure(fmt.Sprint("head ", i)).orderKey; string(got) != key {
			b.tb.Errorf("the order key %q is kept as %q", key, got)
		}
	}
}

// next waits for the one message that is due.
func (b *bench) next(store stores.Retries) stores.Retry {
	b.tb.Helper()
	var due []stores.Retry
	if !poll(b.ctx, patience, func() bool {
		due = b.due(store, 10)
		return len(due) > 0
	}) {
		b.tb.Fatalf("no message is due after %s", patience)
	}
	if len(due) > 1 {
		b.tb.Errorf("due are %q at once, want one after the other", idsOf(due))
	}
	return due[0]
}

func followers(b *bench) {
	here, elsewhere := b.open(), b.open()
	var want, got []string
	for i := range 5 {
		want = append(want, fmt.Sprint("message ", i))
		b.parks(here, want[i], "order", func(f *stores.Failure) {
			if i > 0 {
				f.Class, f.Attempts = stores.ClassOrder, 0
			}
		})
	}
	for range want {
		r := b.next(elsewhere)
		got = append(got, string(r.Key.ID))
		if more := b.due(here, 10); len(more) > 0 {
			b.tb.Errorf("due are %q while %s before them runs", idsOf(more), r.Key)
		}
		if len(got) == 2 { // one of them fails once more; the others wait for it
			f := stores.Failure{
				Key: r.Key, Fingerprint: r.Fingerprint, Version: r.State.Version, Status: stores.StatusPending,
				Placement: stores.PlacementParked, Attempts: 1, Class: stores.ClassTransient, Error: "again",
			}
			b.record(elsewhere, f)
			if r = b.next(here); string(r.Key.ID) != got[1] {
				b.tb.Errorf("%s comes before %s, which has failed again", r.Key, got[1])
			}
		}
		b.commit(b.take(elsewhere, claimOf(r), r.State.Version))
	}
	if !slices.Equal(got, want) {
		b.tb.Errorf("the messages of one order key came as %q, want %q", got, want)
	}
	b.complete(here, orderedClaim("at last", "order"))
	b.paired()
}

// begunInOrder: the end of a message wakes the next one of its order key, unless that one's attempt is
// counted already. Another version would keep that attempt from its claim.
func begunInOrder(b *bench) {
	store := b.open()
	head := b.parks(store, "head", "order", func(f *stores.Failure) { f.DueIn = later })
	version := b.parks(store, "second", "order", func(f *stores.Failure) { f.DueIn = later })
	begun := failureOf(orderedClaim("second", "order"))
	begun.Version, begun.Start, begun.DueIn, begun.Content = version, true, later, nil
	version = b.record(store, begun)
	b.commit(b.take(store, orderedClaim("head", "order"), head))
	b.commit(b.take(store, orderedClaim("second", "order"), version))
	b.paired()
}

func headEnds(b *bench) {
	store := b.open()
	b.parks(store, "head", "order", func(f *stores.Failure) { f.DueIn = later })
	b.parks(store, "second", "order")
	b.parks(store, "third", "order")
	b.wantDue(store)
	b.expect(store, orderedClaim("new", "order"), stores.Behind)

	head := failureOf(orderedClaim("head", "order"))
	head.Version = b.failure("head").version
	b.record(store, changed(head, settledFor)) // fails for good
	r := b.next(store)
	if string(r.Key.ID) != "second" {
		b.tb.Errorf("after the head has failed %s is due, want the second", r.Key)
	}
	if err := store.Release(b.ctx, []stores.Retry{r}); err != nil {
		b.tb.Errorf("Release: %v", err)
	}
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("second")}, 1)
	r = b.next(store)
	if string(r.Key.ID) != "third" {
		b.tb.Errorf("after the second was discarded %s is due, want the third", r.Key)
	}
	if err := store.Release(b.ctx, []stores.Retry{r}); err != nil {
		b.tb.Errorf("Release: %v", err)
	}
	b.change(store, stores.VerbRetry, stores.Filter{ID: []byte("head")}, 1) // is the first again
	var got []string
	for range 2 {
		r := b.next(store)
		got = append(got, string(r.Key.ID))
		b.commit(b.take(store, claimOf(r), r.State.Version))
	}
	if want := []string{"head", "third"}; !slices.Equal(got, want) {
		b.tb.Errorf("after the head is tried again %q are due, want %q", got, want)
	}
	b.complete(store, orderedClaim("new", "order"))
	b.paired()
}

// manyFollowers: those that wait are many, and others are due behind them.
func manyFollowers(b *bench) {
	store := b.open()
	b.parks(store, "head", "order", func(f *stores.Failure) { f.DueIn = later })
	for i := range 30 {
		b.parks(store, fmt.Sprint("follower ", i), "order")
	}
	b.fails(store, "free")
	b.parks(store, "of another order", "another order")
	got := make(map[string]bool)
	poll(b.ctx, patience, func() bool {
		for _, id := range idsOf(b.due(store, 5)) {
			got[id] = true
		}
		return len(got) >= 2
	})
	if !got["free"] || !got["of another order"] || len(got) != 2 {
		b.tb.Errorf("due are %v, want those that wait for nobody", got)
	}
}

// orderRace: messages of a few order keys arrive in order and fail now and then, while
// workers in two processes run what is due.
func orderRace(b *bench) {
	const keys, messages, workers = 3, 6, 4
	open := []stores.Store{b.open(), b.open()}
	o := &ordered{b: b, completed: make(map[string][]int)}
	o.left.Store(keys * messages)
	var group sync.WaitGroup
	for k := range keys {
		group.Go(func() { o.arrive(open[k%len(open)], fmt.Sprint("order ", k), messages) })
	}
	for w := range workers {
		group.Go(func() {
			store := open[w%len(open)]
			poll(b.ctx, checkTimeout, func() bool {
				var due []stores.Retry
				if err := b.retry(func() (err error) {
					due, err = store.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 3, Reserve: reserve})
					return err
				}); err != nil {
					b.tb.Errorf("Due: %v", err)
					return true
				}
				for _, r := range due {
					o.work(store, r)
				}
				return o.left.Load() == 0
			})
		})
	}
	group.Wait()
	for key, numbers := range o.completed {
		if !slices.IsSorted(numbers) || len(numbers) != messages {
			b.tb.Errorf("the messages of %s were completed as %v, want %d in order", key, numbers, messages)
		}
	}
	if n := o.left.Load(); n != 0 {
		b.tb.Errorf("%d messages were not completed", n)
	}
	b.paired()
}

type ordered struct {
	b         *bench
	left      atomic.Int64
	mu        sync.Mutex
	completed map[string][]int
}

// run ends the attempt: most fail. It notes the order while the attempt still holds
// the key, so before its commit.
func (o *ordered) run(attempt stores.Attempt, key, id string) bool {
	if rand.IntN(2) == 0 {
		o.b.rollback(attempt)
		return false
	}
	var number int
	if _, err := fmt.Sscanf(id, key+" %d", &number); err != nil {
		o.b.tb.Errorf("storetest: %q: %v", id, err)
	}
	o.mu.Lock()
	o.completed[key] = append(o.completed[key], number)
	o.mu.Unlock()
	if err := attempt.Commit(o.b.ctx); err != nil {
		o.b.tb.Errorf("Commit: %v", err)
	}
	o.left.Add(-1)
	return true
}

// arrive delivers the messages of one key in order, and parks what fails or is behind.
func (o *ordered) arrive(store stores.Store, key string, messages int) {
	for n := range messages {
		id := fmt.Sprint(key, " ", n)
		claim := orderedClaim(id, key)
		f := failureOf(claim)
		settled := poll(o.b.ctx, checkTimeout, func() bool {
			attempt, v, err := store.Begin(o.b.ctx, claim)
			switch {
			case err != nil:
				return !errors.Is(err, stores.ErrUnavailable)
			case v.Outcome == stores.InFlight: // what it was behind is gone by now
				return false
			case v.Outcome == stores.Claimed:
				if o.run(attempt, key, id) {
					return true
				}
			case v.Outcome == stores.Behind:
				f.Class, f.Attempts = stores.ClassOrder, 0
			default:
				o.b.tb.Errorf("Begin(%s) = %s", claim.Key, v.Outcome)
				return true
			}
			if err := o.b.retry(func() error { _, err := store.Record(o.b.ctx, f); return err }); err != nil {
				o.b.tb.Errorf("Record: %v", err)
			}
			return true
		})
		if !settled {
			o.b.tb.Errorf("%s was not settled", id)
		}
	}
}

// work runs a message that is due, as a retry worker does.
func (o *ordered) work(store stores.Store, r stores.Retry) {
	claim := claimOf(r)
	poll(o.b.ctx, checkTimeout, func() bool {
		attempt, v, err := store.Begin(o.b.ctx, claim)
		if errors.Is(err, stores.ErrUnavailable) || err == nil && v.Outcome == stores.InFlight {
			return false // others pass by
		}
		if err != nil || v.Outcome != stores.Claimed {
			o.b.tb.Errorf("Begin(%s) of a reserved message = %s, %v", claim.Key, v.Outcome, err)
			return true
		}
		if o.run(attempt, string(r.OrderKey), string(r.Key.ID)) {
			return true
		}
		err = o.b.retry(func() error {
			_, err := store.Record(o.b.ctx, stores.Failure{
				Key: r.Key, Fingerprint: r.Fingerprint, Version: r.State.Version, Status: stores.StatusPending,
				Placement: stores.PlacementParked, Attempts: r.State.Attempts + 1, Class: stores.ClassTransient, Error: "again",
			})
			return err
		})
		if err != nil {
			o.b.tb.Errorf("Record: %v", err)
		}
		return true
	})
}
