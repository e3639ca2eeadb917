package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func registryChecks() []check {
	return []check{
		{name: "topics", run: topics},
		{name: "a topic that becomes known later", run: laterTopic},
		{name: "concurrently", run: registerConcurrently},
		{name: "names byte by byte", run: consumerNames},
		{name: "invalid names", run: invalidNames},
		{name: "two services with one name", run: sameName},
		{name: "a registration that was lost", run: lostRegistration},
		{name: "a number that another consumer has", run: takenNumber},
		{name: "processes attend and leave", run: attend},
	}
}

func topics(b *bench) {
	here, elsewhere := b.openOnly(), b.openOnly()
	if _, err := here.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	steps := []struct {
		topic  string
		accept bool
		want   error
	}{
		{topic: "orders"},
		{topic: "orders"},
		{topic: ""},
		{topic: "payments", want: stores.ErrConsumerConflict},
		{topic: "ORDERS", want: stores.ErrConsumerConflict},
		{topic: "orders ", want: stores.ErrConsumerConflict},
		{topic: "payments", want: stores.ErrConsumerConflict}, // asking does not add it
		{topic: "payments", accept: true},
		{topic: "payments"},
		{topic: "orders"},
		{topic: "orders", accept: true},
		{topic: "", accept: true},
		{topic: "refunds", want: stores.ErrConsumerConflict},
		{topic: `or"d'ers,{}[]\ %`, accept: true},
		{topic: `or"d'ers,{}[]\ %`},
		{topic: strings.Repeat("t", 1024), accept: true},
		{topic: strings.Repeat("t", 1023), want: stores.ErrConsumerConflict},
	}
	for i, step := range steps {
		for _, store := range []stores.Store{here, elsewhere} {
			err := store.Register(b.ctx, stores.Registration{Consumer: consumer, Topic: step.topic, AcceptTopic: step.accept})
			what := fmt.Sprintf("step %d: Register for the topic %q, accept %t", i, step.topic, step.accept)
			if step.want != nil {
				wantErr(b.tb, what, err, step.want)
			} else if err != nil {
				b.tb.Errorf("%s: %v", what, err)
			}
		}
	}
	b.complete(here, claimFor("id", "payload"))
	b.expect(elsewhere, claimFor("id", "payload"), stores.Duplicate)
	if n := len(b.dump("millpond_consumer")); n != 1 {
		b.tb.Errorf("one consumer has %d rows", n)
	}
}

func laterTopic(b *bench) {
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	for _, topic := range []string{"", "", "orders", ""} {
		if err := store.Register(b.ctx, stores.Registration{Consumer: consumer, Topic: topic}); err != nil {
			b.tb.Errorf("Register for the topic %q of a consumer whose topic was not known: %v", topic, err)
		}
	}
	wantErr(b.tb, "Register for another topic", store.Register(b.ctx, stores.Registration{Consumer: consumer, Topic: "payments"}), stores.ErrConsumerConflict)
}

// registerConcurrently registers one consumer from many processes at once. If they
// did not agree on its row, a key would be claimed once for each.
func registerConcurrently(b *bench) {
	b.open()
	c := stores.Consumer{Service: "storetest", Handler: "registered concurrently"}
	open := []stores.Store{b.openOnly(), b.openOnly(), b.openOnly(), b.openOnly()}
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			r := stores.Registration{Consumer: c, Topic: fmt.Sprint("topic ", i%3), AcceptTopic: true}
			if err := b.retry(func() error { return open[i%len(open)].Register(b.ctx, r) }); err != nil {
				b.tb.Errorf("Register: %v", err)
			}
		})
	}
	group.Wait()
	claim := claimFor("id", "payload")
	claim.Key.Consumer = c
	b.complete(open[0], claim)
	for _, store := range open {
		b.expect(store, claim, stores.Duplicate)
		for i := range 3 {
			if err := store.Register(b.ctx, stores.Registration{Consumer: c, Topic: fmt.Sprint("topic ", i)}); err != nil {
				b.tb.Errorf("a topic that was accepted is not known: %v", err)
			}
		}
	}
}

// consumerNames are names that must not be taken for each other.
func consumerNames(b *bench) {
	store := b.open()
	var names []stores.Consumer
	for _, service := range []string{"orders", "Orders", "orders ", "order's", `order"s`, "caf\u00e9", "cafe\u0301", "$1", "?", "%", strings.Repeat("s", 200)} {
		for _, handler := range []string{"stock", "Stock", "stock ", "a/b", "'; DROP TABLE millpond_consumer; --", strings.Repeat("h", 200)} {
			names = append(names, stores.Consumer{Service: service, Handler: handler})
		}
	}
	for _, c := range names {
		b.register(store, c)
		claim := claimFor("one id", "payload")
		claim.Key.Consumer = c
		attempt, verdict := b.begin(store, claim)
		if verdict.Outcome != stores.Claimed {
			b.tb.Errorf("Begin for the new consumer %q = %s: it is taken for another", c, verdict.Outcome)
			continue
		}
		b.commit(attempt)
		b.expect(store, claim, stores.Duplicate)
	}
	if rows := b.rows(); len(rows) != len(names) {
		b.tb.Errorf("%d consumers left %d rows", len(names), len(rows))
	}
}

func invalidNames(b *bench) {
	store := b.open()
	before := b.dump("millpond_consumer")
	long := strings.Repeat("n", 201)
	for _, c := range []stores.Consumer{
		{},
		{Service: "service"},
		{Handler: "handler"},
		{Service: "a/b", Handler: "handler"},
		{Service: "a\x00b", Handler: "handler"},
		{Service: "a\nb", Handler: "handler"},
		{Service: "service", Handler: "a\x00b"},
		{Service: "service", Handler: "a\x7fb"},
		{Service: "service", Handler: "a\xffb"},
		{Service: long, Handler: "handler"},
		{Service: "service", Handler: long},
	} {
		wantErr(b.tb, fmt.Sprintf("Register(%q)", c), store.Register(b.ctx, stores.Registration{Consumer: c}), stores.ErrInvalidKey)
	}
	for _, topic := range []string{strings.Repeat("t", 1025), "a\x00b", "a\xffb"} {
		wantErr(b.tb, fmt.Sprintf("Register for the topic %q", topic), store.Register(b.ctx, stores.Registration{Consumer: consumer, Topic: topic}), stores.ErrInvalidKey)
	}
	if after := b.dump("millpond_consumer"); len(before) != len(after) {
		b.tb.Errorf("invalid names left rows: %q", after)
	}
}

// sameName: the second service under a name is refused, and the first goes on.
func sameName(b *bench) {
	first := b.open()
	b.complete(first, claimFor("id", "payload"))
	second := b.openOnly()
	err := second.Register(b.ctx, stores.Registration{Consumer: consumer, Topic: "a topic of another service"})
	wantErr(b.tb, "Register of a second service under the name", err, stores.ErrConsumerConflict)
	_, _, err = second.Begin(b.ctx, claimFor("another id", "payload"))
	wantErr(b.tb, "Begin of a second service under the name", err, stores.ErrNotRegistered)
	b.register(first, consumer)
	b.expect(first, claimFor("id", "payload"), stores.Duplicate)
}

// lostRegistration: a failover to a standby that lacks the last commits takes a consumer's
// row while its process goes on. What that completes counts for the consumer all the same,
// and for no other.
func lostRegistration(b *bench) {
	first, elsewhere, later := b.open(), b.openOnly(), b.openOnly()
	b.exec("DELETE FROM millpond_consumer")
	claim, others := claimFor("id", "payload"), claimFor("id", "payload")
	others.Key.Consumer.Handler = "registered since"
	b.register(elsewhere, others.Key.Consumer)
	b.complete(first, claim)
	b.complete(elsewhere, others)
	b.register(later, consumer)
	b.expect(later, claim, stores.Duplicate)
}

// takenNumber: a consumer must not count under the number of another one.
func takenNumber(b *bench) {
	b.open()
	b.exec("UPDATE millpond_consumer SET handler = 'of the same number'")
	err := b.openOnly().Register(b.ctx, stores.Registration{Consumer: consumer})
	wantErr(b.tb, "Register of a consumer whose number another one has", err, stores.ErrConsumerCollision)
}

// attend: each process sees the others that have not left, and how long they were unseen.
func attend(b *bench) {
	store, elsewhere := b.open(), b.open()
	here, able := store.(stores.Attendance)
	if !able {
		b.tb.Logf("not checked: %T is no stores.Attendance", store)
		return
	}
	there := elsewhere.(stores.Attendance) //nolint:forcetypeassert // as here
	sees := func(who stores.Attendance, process string, want ...string) []stores.Attendant {
		b.tb.Helper()
		others, err := who.Attend(b.ctx, consumer, process)
		if err != nil {
			b.tb.Fatalf("Attend: %v", err)
		}
		var names []string
		for _, o := range others {
			names = append(names, o.Process)
			if o.Unseen < 0 || o.Unseen > time.Hour {
				b.tb.Errorf("%s is unseen for %s", o.Process, o.Unseen)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			b.tb.Errorf("%s sees %q, want %q", process, names, want)
		}
		return others
	}
	sees(here, "a")
	sees(there, "b", "a")
	first := sees(here, "c", "a", "b")
	later := first
	grows := func() bool { // clocks have whole milliseconds
		later = sees(here, "c", "a", "b")
		return later[0].Unseen > first[0].Unseen
	}
	if !poll(b.ctx, patience, grows) {
		b.tb.Errorf("unseen for %s, and %s later", first[0].Unseen, later[0].Unseen)
	}
	sees(there, "b", "a", "c")
	for _, step := range []struct {
		process string
		unseen  time.Duration
	}{{"a", time.Hour}, {"a", 0}, {"a", 0}, {"nobody", 0}} {
		if err := there.Leave(b.ctx, consumer, step.process, step.unseen); err != nil {
			b.tb.Errorf("Leave: %v", err)
		}
		if step.unseen > 0 {
			sees(there, "b", "a", "c")
		}
	}
	sees(there, "b", "c")
}
