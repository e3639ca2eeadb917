package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

func one(p message.Publisher) map[string]message.Publisher {
	return map[string]message.Publisher{"": p}
}

func TestManyInOneTransactionAreRelayedInOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		ids := numbered("m", 4_000)
		check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
			var messages []*message.Message
			for i, id := range ids {
				messages = append(messages, newMessage(id, fmt.Sprint(i%16)))
			}
			return publisher(stores.PublisherConfig{OrderKey: byKey}).Publish("topic", messages...)
		}))
		b := &broker{}
		start(t, r.outbox, quick(one(each{b})))
		testenv.Eventually(t, "all settled", func() bool { return r.waiting() == 0 })
		got := make(map[string][]string)
		for _, msg := range b.messages() {
			got[msg.Metadata.Get("key")] = append(got[msg.Metadata.Get("key")], msg.UUID)
		}
		for k := range 16 {
			var want []string
			for i := k; i < len(ids); i += 16 {
				want = append(want, ids[i])
			}
			same(t, fmt.Sprintf("key %d", k), got[fmt.Sprint(k)], want)
		}
	})
}

func TestPublishersWithoutPublishEachAreGivenOneMessageAtATime(t *testing.T) {
	t.Parallel()
	r := onSQLite(t)
	b := &broker{}
	start(t, r.outbox, quick(one(b)))
	r.say("", "k", numbered("k", 50)...)
	r.say("", "", numbered("m", 50)...)
	testenv.Eventually(t, "all settled", func() bool { return r.waiting() == 0 })
	got := b.all()
	same(t, "the order key", slices.DeleteFunc(slices.Clone(got), func(id string) bool { return id[0] != 'k' }), numbered("k", 50))
	slices.Sort(got)
	same(t, "all", got, append(numbered("k", 50), numbered("m", 50)...))
}

func TestDestinationThatIsAwayPausesAlone(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		var away atomic.Bool
		away.Store(true)
		far := &broker{answer: func(*message.Message) error {
			if away.Load() {
				return fmt.Errorf("%w: no route", brokers.ErrUnavailable)
			}
			return nil
		}}
		near := &broker{}
		c := quick(map[string]message.Publisher{"far": each{far}, "near": each{near}})
		c.MaxAttempts = 1
		start(t, r.outbox, c)
		r.say("far", "k", numbered("far", 1500)...)
		r.say("near", "k", numbered("near", 1500)...)
		testenv.Eventually(t, "the near ones are published", func() bool { return len(near.first()) == 1500 })
		if asked := far.times(); asked > 20 {
			t.Errorf("a destination that is away was asked %d times", asked)
		}
		testenv.Eventually(t, "the near ones are settled", func() bool { return r.waiting() == 1500 })
		if n := r.count("SELECT count(*) FROM millpond_outbox WHERE attempts > 0") + r.count("SELECT count(*) FROM millpond_outbox_failed"); n > 0 {
			t.Errorf("%d attempts were spent", n)
		}
		away.Store(false)
		testenv.Eventually(t, "all settled", func() bool { return r.waiting() == 0 })
		same(t, "far", far.first(), numbered("far", 1500))
		same(t, "near", near.first(), numbered("near", 1500))
	})
}

func TestRefusedMessageSpendsItsBudget(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{true, false} {
		t.Run(fmt.Sprintf("block %v", block), func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, r *rig) {
				b := &broker{answer: func(msg *message.Message) error {
					switch {
					case strings.HasPrefix(msg.UUID, "bad"):
						return errors.New("not like this")
					case msg.UUID == "large":
						return brokers.ErrTooLarge
					case msg.UUID == "panics":
						panic("boom")
					}
					return nil
				}}
				c := quick(one(each{b}))
				c.MaxAttempts, c.BlockKeys = 3, block
				_, stop := start(t, r.outbox, c)
				r.say("", "k", "a", "bad", "b", "c")
				r.say("", "l", "large", "d")
				r.say("", "", "e", "badly", "f", "panics")
				left := 0
				want := []string{"a", "b", "c", "d", "e", "f"}
				if block {
					left, want = 3, []string{"a", "e", "f"}
				}
				testenv.Eventually(t, "four dead letters", func() bool {
					return r.count("SELECT count(*) FROM millpond_outbox_failed") == 4 && r.waiting() == left
				})
				if n := r.count("SELECT count(*) FROM millpond_outbox_failed WHERE attempts = 3"); n != 3 {
					t.Errorf("%d of 3 have spent their attempts", n)
				}
				if block { // after a restart, too
					stop()
					start(t, r.outbox, c)
					<-time.After(300 * time.Millisecond) // in which it must publish nothing
					check(t, r.transact(func(_ func(stores.PublisherConfig) message.Publisher, exec execer) error {
						return exec("DELETE FROM millpond_outbox_failed")
					}))
					want = []string{"a", "b", "c", "d", "e", "f"}
					testenv.Eventually(t, "what waited is published", func() bool { return r.waiting() == 0 })
				}
				got := b.first()
				if i, j := slices.Index(got, "b"), slices.Index(got, "c"); i > j {
					t.Errorf("out of order: %q", got)
				}
				slices.Sort(got)
				same(t, "published", got, want)
			})
		})
	}
}

// However many messages a destination refuses, others of it do not wait for them.
func TestManyRefusedMessagesKeepNoOthersWaiting(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		b := &broker{answer: func(msg *message.Message) error {
			if strings.HasPrefix(msg.UUID, "bad") {
				return errors.New("unknown topic")
			}
			return nil
		}}
		c := quick(one(each{b}))
		c.Backoff = time.Minute
		r.say("", "", numbered("bad", 2_000)...)
		r.say("", "k", numbered("good", 100)...)
		start(t, r.outbox, c)
		testenv.Eventually(t, "the others are published", func() bool { return len(b.first()) == 100 })
		same(t, "others", b.first(), numbered("good", 100))
		testenv.Eventually(t, "settled", func() bool { return r.waiting() == 2_000 })
	})
}

// However many order keys wait behind refused messages of theirs, others do not wait for them.
func TestManyPausedOrderKeysKeepNoOthersWaiting(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		const keys = 600
		var mended atomic.Bool
		b := &broker{answer: func(msg *message.Message) error {
			if !mended.Load() && strings.HasPrefix(msg.UUID, "first") {
				return errors.New("unknown topic")
			}
			return nil
		}}
		c := quick(one(each{b}))
		c.Backoff = time.Minute
		check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
			var messages []*message.Message
			for _, id := range append(numbered("first", keys), numbered("later", keys)...) {
				messages = append(messages, newMessage(id, "key "+id[5:]))
			}
			return publisher(stores.PublisherConfig{OrderKey: byKey, Last: true}).Publish("topic", messages...)
		}))
		r.say("", "k", numbered("good", 100)...)
		_, stop := start(t, r.outbox, c)
		testenv.Eventually(t, "the others are published", func() bool { return len(b.first()) == 100 })
		testenv.Eventually(t, "settled", func() bool { return r.waiting() == 2*keys })
		same(t, "others", b.first(), numbered("good", 100))
		stop()
		mended.Store(true)
		start(t, r.outbox, c) // which knows of no pauses
		testenv.Eventually(t, "what had waited is published", func() bool { return r.waiting() == 0 })
		done := make(map[string]bool)
		for _, id := range b.first() {
			if done[id] = true; strings.HasPrefix(id, "later") && !done["first"+id[5:]] {
				t.Fatalf("%s was published before what came before it", id)
			}
		}
	})
}

// What is written to an order key when its dead letter has just gone is not published before
// what had waited behind that, which the relay has long passed by.
func TestUnblockedOrderKeyGoesOnInOrder(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		b := &broker{answer: func(msg *message.Message) error {
			if strings.HasPrefix(msg.UUID, "bad") {
				return errors.New("not like this")
			}
			return nil
		}}
		c := quick(one(each{b}))
		c.MaxAttempts, c.BlockKeys = 1, true
		relay, stop := start(t, r.outbox, c)
		for round := range 3 {
			if round == 2 { // who has not refused it itself
				stop()
				relay, _ = start(t, r.outbox, c)
			}
			id := func(name string) string { return fmt.Sprintf("%s %d", name, round) }
			r.say("", "k", id("bad"), id("b"), id("c"))
			testenv.Eventually(t, "a dead letter", func() bool { return r.count("SELECT count(*) FROM millpond_outbox_failed") == 1 })
			for n := range 30 { // the relay goes on
				r.say("", "", fmt.Sprintf("other %d %d", round, n))
				<-time.After(20 * time.Millisecond)
			}
			check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, exec execer) error {
				if err := exec("DELETE FROM millpond_outbox_failed"); err != nil {
					return err
				}
				return publisher(stores.PublisherConfig{OrderKey: byKey}).Publish("topic", newMessage(id("d"), "k"))
			}))
			relay.Poke()
			testenv.Eventually(t, "what waited is published", func() bool { return r.waiting() == 0 })
			var got []string
			for _, id := range b.first() {
				if !strings.HasPrefix(id, "other") && strings.HasSuffix(id, fmt.Sprint(round)) {
					got = append(got, id)
				}
			}
			same(t, "of the order key", got, []string{id("b"), id("c"), id("d")})
		}
	})
}

// A relay that has died between publishing and writing it down has done so without giving
// its leases back.
func TestKilledRelayIsFollowedByOneThatPublishesAgain(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		if first, second := survives(r, nil); !slices.Equal(first, second) || len(first) != 20 {
			t.Errorf("published %q, and again %q", first, second)
		}
	})
}

// survives lets a relay die after it has published, and another follow. It returns what each
// has published.
func survives(r *rig, wrap func(stores.Outbox) stores.Outbox) (first, second []string) {
	r.tb.Helper()
	r.say("", "k", numbered("m", 20)...)
	dying := stores.Outbox(&killed{Outbox: r.outbox})
	if wrap != nil {
		dying = wrap(dying)
	}
	one0, two := &broker{}, &broker{}
	c := quick(one(each{one0}))
	c.LeaseTTL, c.PublishTimeout, c.DrainTimeout = 500*time.Millisecond, 400*time.Millisecond, time.Millisecond
	_, stop := start(r.tb, dying, c)
	testenv.Eventually(r.tb, "published", func() bool { return len(one0.first()) == 20 })
	stop()
	start(r.tb, r.outbox, quick(one(each{two})))
	testenv.Eventually(r.tb, "settled", func() bool { return r.waiting() == 0 })
	return one0.all(), two.all()
}

// killed is the store of a relay that is killed before it can write anything down.
type killed struct{ stores.Outbox }

func (k *killed) Settle(ctx context.Context, _ stores.Settlement) error  { return errors.New("dead") }
func (k *killed) Unlease(context.Context, string, string, []int64) error { return nil }

// As after SIGSTOP: neither its renewals nor its publishing go on.
func TestRelayThatStandsStillBeyondItsLeaseDoesNotPublish(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		r.say("", "k", numbered("m", 20)...)
		stand, goOn := make(chan struct{}), make(chan struct{})
		stalled, other := &broker{}, &broker{}
		stalled.answer = func(msg *message.Message) error {
			if msg.UUID == "m00004" {
				close(stand)
				<-goOn
			}
			return nil
		}
		c := quick(one(stalled))
		c.LeaseTTL, c.PublishTimeout = 600*time.Millisecond, 500*time.Millisecond
		frozen := &frozen{Outbox: r.outbox, at: stand, until: goOn}
		_, stop := start(t, frozen, c)
		<-stand
		start(t, r.outbox, quick(one(other)))
		testenv.Eventually(t, "the other has published the rest", func() bool { return r.waiting() == 0 })
		close(goOn)
		<-time.After(time.Second) // in which it must publish nothing
		stop()
		same(t, "who stood still", stalled.all(), numbered("m", 5))
		got := other.first()
		if len(got) == 0 || !slices.Equal(got, numbered("m", 20)[20-len(got):]) || len(got) < 16 {
			t.Errorf("the other: %q", got)
		}
	})
}

// frozen is the store of a process that stands still.
type frozen struct {
	stores.Outbox
	at, until chan struct{}
}

func (f *frozen) wait() {
	select {
	case <-f.at:
		<-f.until
	default:
	}
}

func (f *frozen) Lease(ctx context.Context, r stores.LeaseRequest) (stores.Leased, error) {
	f.wait()
	return f.Outbox.Lease(ctx, r)
}

func (f *frozen) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	f.wait()
	return f.Outbox.Pending(ctx, q)
}

func (f *frozen) Settle(ctx context.Context, s stores.Settlement) error {
	f.wait()
	return f.Outbox.Settle(ctx, s)
}

func TestStoppedRelayWritesDownWhatItHasPublishedAndGivesItsLeasesBack(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		begun := make(chan struct{}, 100)
		b := &broker{answer: func(*message.Message) error {
			begun <- struct{}{}
			<-time.After(200 * time.Millisecond)
			return nil
		}}
		_, stop := start(t, r.outbox, quick(one(b)))
		r.say("", "k", numbered("m", 10)...)
		<-begun
		stop()
		if got := b.all(); len(got) != 1 || r.waiting() != 9 {
			t.Errorf("published %q, and %d are left", got, r.waiting())
		}
		if n := r.count("SELECT count(*) FROM millpond_lease"); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

func TestRelaysShareTheBuckets(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		shares := func() (owners, most int) {
			return r.count("SELECT count(DISTINCT owner) FROM millpond_lease WHERE name = 'outbox'"),
				r.count("SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM millpond_lease WHERE name = 'outbox' GROUP BY owner) s")
		}
		c := quick(one(&broker{}))
		c.LeaseTTL, c.PublishTimeout = 1500*time.Millisecond, time.Second
		var stops []func()
		for relays := 1; relays <= 3; relays++ {
			_, stop := start(t, r.outbox, c)
			stops = append(stops, stop)
			testenv.Eventually(t, fmt.Sprintf("%d relays share", relays), func() bool {
				owners, most := shares()
				return owners == relays && most == (stores.OutboxBuckets+relays-1)/relays &&
					r.count("SELECT count(*) FROM millpond_lease WHERE name = 'outbox'") == stores.OutboxBuckets
			})
		}
		stops[0]()
		stops[1]()
		testenv.Eventually(t, "the last has all", func() bool {
			owners, most := shares()
			return owners == 1 && most == stores.OutboxBuckets
		})
	})
}

func TestUnknownDestinationWaits(t *testing.T) {
	t.Parallel()
	r := onSQLite(t)
	b := &broker{}
	_, stop := start(t, r.outbox, quick(one(b)))
	r.say("removed", "k", "a", "b")
	r.say("", "k", "c")
	testenv.Eventually(t, "the other is published", func() bool { return r.waiting() == 2 })
	stop()
	start(t, r.outbox, quick(map[string]message.Publisher{"": b, "removed": b}))
	testenv.Eventually(t, "all settled", func() bool { return r.waiting() == 0 })
	same(t, "published", b.all(), []string{"c", "a", "b"})
}

func TestContentPassesTheCodec(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		flip := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
			flipped := make([]byte, len(k.Payload))
			for i, c := range k.Payload {
				flipped[i] = ^c
			}
			k.Payload = flipped
			return k, nil
		}
		codec := &middleware.Codec{Name: "flip", Encode: flip, Decode: flip}
		check(t, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
			return publisher(stores.PublisherConfig{Encode: outbox.Encode(codec)}).Publish("topic", newMessage("a", ""))
		}))
		p, err := r.outbox.Pending(t.Context(), stores.PendingQuery{Buckets: allBuckets(), Limit: 1, Bytes: 1})
		check(t, err)
		if o := p.Outputs[0]; o.Codec != "flip" || strings.Contains(string(o.Payload), "content") {
			t.Errorf("%+v", o)
		}
		b := &broker{}
		c := quick(one(b))
		c.Codec, c.Keep = codec, true
		start(t, r.outbox, c)
		testenv.Eventually(t, "settled", func() bool { return r.waiting() == 0 })
		if got := string(b.messages()[0].Payload); got != "content of a" {
			t.Errorf("published %q", got)
		}
		if n := r.count("SELECT count(*) FROM millpond_outbox_history WHERE codec = 'flip'"); n != 1 {
			t.Errorf("the history has %d", n)
		}
	})
}

func allBuckets() (buckets []int64) {
	for b := range int64(stores.OutboxBuckets) {
		buckets = append(buckets, b)
	}
	return buckets
}

func TestConfigurationNamesEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(nil, outbox.Config{
		Publishers: map[string]message.Publisher{"p": nil, "loop": outbox.Forwarder{}.Publisher(outbox.Publisher("x"))}, MaxAttempts: -1, LeaseTTL: time.Second, PublishTimeout: time.Minute,
		Codec: &middleware.Codec{},
	})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, part := range []string{"store", `Publishers["p"]`, `Publishers["loop"] is an outbox.Publisher`, "MaxAttempts", "LeaseTTL", "Codec"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not in %v", part, err)
		}
	}
	r := onSQLite(t)
	relay, err := outbox.New(r.outbox, quick(one(&broker{})))
	check(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	check(t, relay.Run(ended))
	if err := relay.Run(ended); err == nil {
		t.Error("it runs twice")
	}
}
