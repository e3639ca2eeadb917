package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

func outboxChecks(h *Harness) []check {
	if h.Transact == nil {
		return nil
	}
	return []check{
		{name: "a rollback leaves nothing", run: func(b *bench) { b.outboxRollback() }},
		{name: "content byte by byte", run: func(b *bench) { b.outboxContent() }},
		{name: "what is no output", run: func(b *bench) { b.outboxInvalid() }},
		{name: "what is left out", run: func(b *bench) { b.outboxLeftOut() }},
		{name: "limits", run: func(b *bench) { b.outboxLimits() }},
		{name: "published and kept", run: func(b *bench) { b.outboxPublished() }},
		{name: "numbers that are others' now", run: func(b *bench) { b.outboxOfAnother() }},
		{name: "refused and failed", run: func(b *bench) { b.outboxRefused() }},
		{name: "an order key has one writer", run: func(b *bench) { b.outboxOneWriter() }},
		{name: "what is committed late", run: func(b *bench) { b.outboxLate() }},
		{name: "what is committed late by the younger one", run: func(b *bench) { b.outboxYounger() }},
		{name: "what operators see", run: func(b *bench) { b.outboxOperatorsRead() }},
		{name: "what operators decide", run: func(b *bench) { b.outboxOperatorsChange() }},
		{name: "operators at once", run: func(b *bench) { b.outboxOperatorsAtOnce() }},
		{name: "many in one transaction", run: func(b *bench) { b.outboxMany() }},
	}
}

// openOutbox opens a store that knows no consumer: producers and relays need none.
func (b *bench) openOutbox() (stores.Store, stores.Outbox) {
	b.tb.Helper()
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	if err := store.Validate(b.ctx); err != nil {
		b.tb.Fatalf("Validate: %v", err)
	}
	return store, b.outboxOf(store)
}

func (b *bench) outboxOf(store stores.Store) stores.Outbox {
	b.tb.Helper()
	outbox, ok := store.(stores.Outbox)
	if !ok {
		b.tb.Fatalf("a %T is no stores.Outbox", store)
	}
	if b.keys.none = store.Capabilities().OutputsUnordered; b.keys.none { // it knows by itself, or once a consumer is registered
		b.tb.Log("not checked: order keys, which the store says it refuses for outputs")
	}
	return outbox
}

// keysOfOutputs are the order keys of outputs; none if the store refuses them.
type keysOfOutputs struct{ none bool }

// byOrderMetadata is a stores.PublisherConfig.OrderKey.
func (k keysOfOutputs) byOrderMetadata(o stores.Output) []byte {
	if key, ok := o.Metadata["order"]; ok {
		return k.of(key)
	}
	return nil
}

// unblocked returns ids, preceded by one that waits behind a dead letter if there are order keys.
func (k keysOfOutputs) unblocked(behind string, ids ...string) []string {
	if k.none {
		return append([]string{behind}, ids...)
	}
	return ids
}

// drawnFirst returns the order of an output that is written first and committed last, and another one.
// Without order keys the commit draws the numbers.
func (k keysOfOutputs) drawnFirst(late, early string) []string {
	if k.none {
		return []string{early, late}
	}
	return []string{late, early}
}

func (k keysOfOutputs) of(key string) []byte {
	if k.none {
		return nil
	}
	return []byte(key)
}

// say publishes messages with these ids, each with an order key if there is one after a slash,
// in a transaction that commits.
func (b *bench) say(store stores.Store, c stores.PublisherConfig, ids ...string) {
	b.tb.Helper()
	c.OrderKey = b.keys.byOrderMetadata
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		return publisher(c).Publish(topic, messagesOf(ids...)...)
	})
	if err != nil {
		b.tb.Fatalf("publish %v: %v", ids, err)
	}
}

func messagesOf(ids ...string) (messages []*message.Message) {
	for _, id := range ids {
		msg := message.NewMessage(id, []byte("content of "+id))
		if _, key, ok := strings.Cut(id, "/"); ok {
			msg.Metadata.Set("order", key)
		}
		messages = append(messages, msg)
	}
	return messages
}

func allBuckets() []int64 {
	buckets := make([]int64, stores.OutboxBuckets)
	for i := range buckets {
		buckets[i] = int64(i)
	}
	return buckets
}

func (b *bench) pending(outbox stores.Outbox, change func(*stores.PendingQuery)) stores.Pending {
	b.tb.Helper()
	q := stores.PendingQuery{Buckets: allBuckets(), Limit: 100, Bytes: 1 << 20}
	if change != nil {
		change(&q)
	}
	p, err := outbox.Pending(b.ctx, q)
	if err != nil {
		b.tb.Fatalf("Pending: %v", err)
	}
	if !slices.IsSortedFunc(p.Outputs, func(a, b stores.PendingOutput) int { return int(a.Number - b.Number) }) {
		b.tb.Errorf("the numbers are not in order: %+v", p.Outputs)
	}
	return p
}

func (b *bench) waiting(outbox stores.Outbox, change func(*stores.PendingQuery), want ...string) []stores.PendingOutput {
	b.tb.Helper()
	p := b.pending(outbox, change)
	ids := []string{}
	for _, o := range p.Outputs {
		ids = append(ids, o.ID)
	}
	if want == nil {
		want = []string{}
	}
	if !slices.Equal(ids, want) {
		b.tb.Errorf("there wait %q, want %q", ids, want)
	}
	return p.Outputs
}

var errRollback = errors.New("roll back")

func (b *bench) outboxRollback() {
	store, outbox := b.openOutbox()
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		if err := publisher(stores.PublisherConfig{OrderKey: b.keys.byOrderMetadata}).Publish(topic, messagesOf("a", "b/k")...); err != nil {
			return err
		}
		b.waiting(outbox, nil)
		return errRollback
	})
	if !errors.Is(err, errRollback) {
		b.tb.Fatal(err)
	}
	b.waiting(outbox, nil)
	b.say(store, stores.PublisherConfig{}, "c")
	b.waiting(outbox, nil, "c")
}

func (b *bench) outboxContent() {
	store, outbox := b.openOutbox()
	trace, _ := stores.ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	outputs := []stores.Output{
		{ID: "A", Payload: nil},
		{ID: "a", Payload: []byte{}},
		{ID: "a ", Payload: []byte("\x00\xff'\\\"")},
		{ID: "id \x00\xff", OrderKey: b.keys.of("k\x00\xff"), Type: "OrderPlaced ü", Metadata: map[string]string{"n\xff": "\x00v", "ü": ""}, Payload: []byte("p")},
		{ID: strings.Repeat("i", stores.MaxIDBytes), OrderKey: b.keys.of(strings.Repeat("k", stores.MaxOrderKeyBytes)), Payload: b.large("large ")},
		{ID: "traced", TraceParent: trace, Metadata: map[string]string{"traceparent": trace.String()}, Payload: []byte("t")},
	}
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		for _, o := range outputs {
			msg := message.NewMessage(o.ID, o.Payload)
			msg.Metadata = o.Metadata
			p := publisher(stores.PublisherConfig{
				Destination: "über", OrderKey: func(stores.Output) []byte { return o.OrderKey }, Type: func(stores.Output) string { return o.Type },
			})
			if err := p.Publish(topic, msg); err != nil {
				return err
			}
		}
		return publisher(stores.PublisherConfig{}).Publish(topic, message.NewMessage("", []byte("named by nobody")))
	})
	if err != nil {
		b.tb.Fatal(err)
	}
	got := b.pending(outbox, func(q *stores.PendingQuery) { q.Bytes = 1 << 30 }).Outputs
	if len(got) != len(outputs)+1 {
		b.tb.Fatalf("there wait %d, want %d", len(got), len(outputs)+1)
	}
	for i, want := range outputs {
		o := got[i]
		want.Destination, want.Topic = "über", topic
		same := len(o.Payload) == len(want.Payload) && string(o.Payload) == string(want.Payload) && maps.Equal(o.Metadata, want.Metadata) &&
			(o.OrderKey == nil) == (want.OrderKey == nil) && string(o.OrderKey) == string(want.OrderKey)
		o.Payload, o.Metadata, o.OrderKey, want.Payload, want.Metadata, want.OrderKey = nil, nil, nil, nil, nil, nil
		if !same || !reflect.DeepEqual(o.Output, want) || o.Err != nil || o.Attempts != 0 || o.Bucket < 0 || o.Bucket >= stores.OutboxBuckets {
			b.tb.Errorf("output %d is %.300v, want %.300v (content the same: %v)", i, fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", outputs[i]), same)
		}
		if age := time.Since(o.CreatedAt); age < -time.Minute || age > time.Minute {
			b.tb.Errorf("output %d was created at %s", i, o.CreatedAt)
		}
	}
	if got[len(outputs)].ID == "" {
		b.tb.Error("a message without a UUID has got none")
	}
}

func (b *bench) outboxInvalid() {
	store, outbox := b.openOutbox()
	errRefused := errors.New("nobody publishes that")
	if checker, ok := store.(stores.OutputChecker); ok {
		checker.CheckOutputs(func(destination, topic string) error {
			if destination == "kafka" && topic == "refused" {
				return errRefused
			}
			return nil
		})
		defer checker.CheckOutputs(nil)
	}
	long := func(n int) string { return strings.Repeat("x", n+1) }
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		key := func(k string) stores.PublisherConfig {
			return stores.PublisherConfig{OrderKey: func(stores.Output) []byte { return []byte(k) }}
		}
		for name, bad := range map[string]struct {
			config   stores.PublisherConfig
			topic    string
			messages []*message.Message
		}{
			"no topic":       {topic: "", messages: messagesOf("a")},
			"a long topic":   {topic: long(stores.MaxTopicBytes), messages: messagesOf("a")},
			"no text":        {topic: "\xff", messages: messagesOf("a")},
			"a NUL":          {topic: "a\x00", messages: messagesOf("a")},
			"a long id":      {topic: topic, messages: messagesOf("a", long(stores.MaxIDBytes))},
			"no message":     {topic: topic, messages: []*message.Message{nil}},
			"a long key":     {topic: topic, messages: messagesOf("a"), config: key(long(stores.MaxOrderKeyBytes))},
			"a far place":    {topic: topic, messages: messagesOf("a"), config: stores.PublisherConfig{Destination: long(stores.MaxDestinationBytes)}},
			"no destination": {topic: topic, messages: messagesOf("a"), config: stores.PublisherConfig{Destination: "\xff"}},
			"refused":        {topic: "refused", messages: messagesOf("a"), config: stores.PublisherConfig{Destination: "kafka"}},
			"a long type":    {topic: topic, messages: messagesOf("a"), config: stores.PublisherConfig{Type: func(stores.Output) string { return long(stores.MaxDestinationBytes) }}},
		} {
			if _, ok := store.(stores.OutputChecker); !ok && bad.topic == "refused" {
				continue
			}
			if err := publisher(bad.config).Publish(bad.topic, bad.messages...); !errors.Is(err, stores.ErrInvalidOutput) || bad.topic == "refused" && !errors.Is(err, errRefused) {
				b.tb.Errorf("%s: %v, want an error that wraps stores.ErrInvalidOutput", name, err)
			}
		}
		if err := publisher(stores.PublisherConfig{}).Publish(topic); err != nil {
			b.tb.Errorf("no messages at all: %v", err)
		}
		return publisher(stores.PublisherConfig{}).Publish(topic, messagesOf("good")...)
	})
	if err != nil {
		b.tb.Errorf("the transaction did not survive: %v", err)
	}
	b.waiting(outbox, nil, "good")
}

func (b *bench) outboxLeftOut() {
	store, outbox := b.openOutbox()
	b.say(store, stores.PublisherConfig{Destination: "one"}, "a", "b/k", "c/l")
	b.say(store, stores.PublisherConfig{Destination: "two"}, "d", "e/k", "f/K")
	all := b.waiting(outbox, nil, "a", "b/k", "c/l", "d", "e/k", "f/K")
	if len(all) != 6 {
		return
	}
	query := func(f func(q *stores.PendingQuery)) func(q *stores.PendingQuery) { return f }
	b.waiting(outbox, query(func(q *stores.PendingQuery) { q.After = all[2].Number }), "d", "e/k", "f/K")
	b.waiting(outbox, query(func(q *stores.PendingQuery) { q.ExceptNumbers = []int64{all[0].Number, all[4].Number} }), "b/k", "c/l", "d", "f/K")
	b.waiting(outbox, query(func(q *stores.PendingQuery) { q.ExceptDestinations = []string{"one", "three", "four"} }), "d", "e/k", "f/K")
	if !b.keys.none {
		b.waiting(outbox, query(func(q *stores.PendingQuery) { q.ExceptKeys = []stores.OutputKey{{Destination: "two", OrderKey: "k"}} }), "a", "b/k", "c/l", "d", "f/K")
		b.waiting(outbox, query(func(q *stores.PendingQuery) {
			q.ExceptKeys = []stores.OutputKey{{Destination: "two", OrderKey: "k"}, {Destination: "one", OrderKey: "l"}, {Destination: "", OrderKey: "k"}}
		}), "a", "b/k", "d", "f/K")
	}
	var of []string
	for bucket := range int64(stores.OutboxBuckets) {
		for _, o := range b.pending(outbox, func(q *stores.PendingQuery) { q.Buckets = []int64{bucket} }).Outputs {
			of = append(of, o.ID)
			if o.Bucket != bucket {
				b.tb.Errorf("%q of bucket %d came with %d", o.ID, o.Bucket, bucket)
			}
		}
	}
	if slices.Sort(of); !slices.Equal(of, []string{"a", "b/k", "c/l", "d", "e/k", "f/K"}) {
		b.tb.Errorf("the buckets have %q", of)
	}
	if !b.keys.none && all[1].Bucket != all[4].Bucket {
		b.tb.Errorf("one order key is in the buckets %d and %d", all[1].Bucket, all[4].Bucket)
	}
}

func (b *bench) outboxLimits() {
	store, outbox := b.openOutbox()
	b.say(store, stores.PublisherConfig{}, "a", "b", "c")
	for _, test := range []struct {
		limit, bytes int
		want         []string
		more         bool
	}{
		{4, 1 << 20, []string{"a", "b", "c"}, false},
		{2, 1 << 20, []string{"a", "b"}, true},
		{4, 1, []string{"a"}, true}, // one at least
		{4, 2 * len("content of a"), []string{"a", "b"}, true},
	} {
		change := func(q *stores.PendingQuery) { q.Limit, q.Bytes = test.limit, test.bytes }
		got := b.waiting(outbox, change, test.want...)
		p := b.pending(outbox, change)
		if p.More != test.more {
			b.tb.Errorf("%d outputs and %d bytes: more is %v", test.limit, test.bytes, p.More)
		}
		if test.more && p.Through > got[len(got)-1].Number {
			b.tb.Errorf("%d outputs and %d bytes: through %d, though there is more after %d", test.limit, test.bytes, p.Through, got[len(got)-1].Number)
		}
	}
	if _, err := outbox.Pending(b.ctx, stores.PendingQuery{Buckets: allBuckets()}); err == nil {
		b.tb.Error("no limit is taken")
	}
}

func (b *bench) rowsOf(table string) (n int) {
	b.tb.Helper()
	if err := b.db.Admin.QueryRowContext(b.ctx, "SELECT count(*) FROM millpond_"+table).Scan(&n); err != nil {
		b.tb.Fatal(err)
	}
	return n
}

func (b *bench) settle(outbox stores.Outbox, s stores.Settlement) {
	b.tb.Helper()
	if err := outbox.Settle(b.ctx, s); err != nil {
		b.tb.Fatalf("Settle(%+v): %v", s, err)
	}
}

// outboxOfAnother: after a failover that lost commits, others have the numbers of outputs that
// a relay still has in hand.
func (b *bench) outboxOfAnother() {
	store, outbox := b.openOutbox()
	b.say(store, stores.PublisherConfig{}, "a", "b", "c", "d")
	all := b.waiting(outbox, nil, "a", "b", "c", "d")
	if len(all) != 4 {
		return
	}
	lost := all[0].CreatedAt.Add(-time.Second)
	for _, keep := range []bool{true, false} {
		b.settle(outbox, stores.Settlement{Published: []int64{all[0].Number}, CreatedAt: []time.Time{lost}, Keep: keep})
	}
	for _, failed := range []bool{true, false} {
		b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: all[1].Number, CreatedAt: lost, Attempts: 7, Error: "no", Failed: failed}}})
	}
	for _, o := range b.waiting(outbox, nil, "a", "b", "c", "d") {
		if o.Attempts != 0 {
			b.tb.Errorf("an output that has a refused one's number was refused %d times", o.Attempts)
		}
	}
	b.settle(outbox, stores.Settlement{Published: []int64{all[0].Number, all[2].Number}, CreatedAt: []time.Time{all[0].CreatedAt, lost}, Keep: true})
	b.settle(outbox, stores.Settlement{Published: []int64{all[1].Number}, CreatedAt: []time.Time{all[1].CreatedAt}})
	b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: all[3].Number, CreatedAt: all[3].CreatedAt, Attempts: 7, Error: "no", Failed: true}}})
	b.waiting(outbox, nil, "c")
	if kept, failed := b.rowsOf("outbox_history"), b.rowsOf("outbox_failed"); kept != 1 || failed != 1 {
		b.tb.Errorf("the history has %d rows, and %d have failed, want one each", kept, failed)
	}
}

func (b *bench) outboxPublished() {
	store, outbox := b.openOutbox()
	b.say(store, stores.PublisherConfig{}, "a", "b/k", "c", "d")
	all := b.waiting(outbox, nil, "a", "b/k", "c", "d")
	if len(all) != 4 {
		return
	}
	b.settle(outbox, stores.Settlement{})
	b.settle(outbox, stores.Settlement{Published: []int64{all[0].Number}})
	b.waiting(outbox, nil, "b/k", "c", "d")
	for range 2 { // again after a lost answer
		b.settle(outbox, stores.Settlement{Published: []int64{all[0].Number, all[1].Number, all[2].Number}, Keep: true})
		b.waiting(outbox, nil, "d")
		if n := b.rowsOf("outbox_history"); n != 2 {
			b.tb.Errorf("the history has %d rows, want 2", n)
		}
	}
	b.say(store, stores.PublisherConfig{}, "e")
	if got := b.waiting(outbox, nil, "d", "e"); len(got) == 2 && got[1].Number <= all[3].Number {
		b.tb.Errorf("the numbers %d and then %d", all[3].Number, got[1].Number)
	}
}

func (b *bench) outboxRefused() {
	store, outbox := b.openOutbox()
	b.say(store, stores.PublisherConfig{Destination: "one"}, "a/k", "b/k", "c/l")
	b.say(store, stores.PublisherConfig{Destination: "two"}, "d/k", "e")
	all := b.waiting(outbox, nil, "a/k", "b/k", "c/l", "d/k", "e")
	if len(all) != 5 {
		return
	}
	b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: all[0].Number, Attempts: 3, Error: "no \x00\xff"}}, Published: []int64{all[4].Number}})
	if got := b.waiting(outbox, nil, "a/k", "b/k", "c/l", "d/k"); len(got) == 4 && (got[0].Attempts != 3 || got[1].Attempts != 0) {
		b.tb.Errorf("attempts: %d and %d", got[0].Attempts, got[1].Attempts)
	}
	for range 2 {
		b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: all[0].Number, Attempts: 4, Error: "no", Failed: true, Blocks: true}}})
		b.waiting(outbox, nil, b.keys.unblocked("b/k", "c/l", "d/k")...) // another key, and another destination
		if n := b.rowsOf("outbox_failed"); n != 1 {
			b.tb.Errorf("there are %d dead letters, want 1", n)
		}
	}
	b.settle(outbox, stores.Settlement{Refused: []stores.RefusedOutput{{Number: all[2].Number, Attempts: 1, Error: "no", Failed: true}}})
	b.say(store, stores.PublisherConfig{Destination: "one"}, "f/l", "g/k")
	if b.keys.none {
		b.waiting(outbox, nil, "b/k", "d/k", "f/l", "g/k")
		return
	}
	b.waiting(outbox, nil, "d/k", "f/l")
	b.exec("DELETE FROM millpond_outbox_failed WHERE id = " + fmt.Sprint(all[0].Number))
	b.waiting(outbox, nil, "b/k", "d/k", "f/l", "g/k")
}

func (b *bench) outboxOneWriter() {
	store, outbox := b.openOutbox()
	if c := store.Capabilities(); c.SingleWriter || c.OutputsUnordered {
		b.tb.Logf("not checked: %+v", c)
		return
	}
	begun, release := make(chan struct{}), make(chan struct{})
	publish := func(ctx context.Context, id string, last bool, after func() error) error {
		return b.h.Transact(ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
			msg := messagesOf(id)[0]
			msg.SetContext(ctx)
			if err := publisher(stores.PublisherConfig{OrderKey: b.keys.byOrderMetadata, Last: last}).Publish(topic, msg); err != nil {
				return err
			}
			return after()
		})
	}
	done := func() error { return nil }
	errs := make(chan error, 2)
	go func() {
		errs <- publish(b.ctx, "first/k", false, func() error {
			close(begun)
			<-release
			return nil
		})
	}()
	<-begun
	if err := publish(b.ctx, "other/l", false, done); err != nil {
		b.tb.Errorf("another key: %v", err)
	}
	if err := publish(b.ctx, "last/k", true, done); err != nil {
		b.tb.Errorf("one that has promised to be the last statement: %v", err)
	}
	go func() { errs <- publish(b.ctx, "second/k", false, done) }()
	select {
	case err := <-errs:
		b.tb.Errorf("a second writer of the order key did not wait (%v)", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	for range 2 {
		if err := <-errs; err != nil {
			b.tb.Error(err)
		}
	}
	b.waiting(outbox, nil, "first/k", "other/l", "last/k", "second/k")
}

func (b *bench) outboxLate() {
	store, outbox := b.openOutbox()
	if store.Capabilities().SingleWriter {
		b.tb.Log("not checked: transactions that write run one after another")
		return
	}
	var first, second int64
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		if err := publisher(stores.PublisherConfig{}).Publish(topic, messagesOf("late")...); err != nil {
			return err
		}
		b.say(store, stores.PublisherConfig{}, "early")
		for range 8 {
			p := b.pending(outbox, nil)
			if len(p.Outputs) != 1 || p.Outputs[0].ID != "early" {
				b.tb.Fatalf("%+v", p)
			}
			if second = p.Outputs[0].Number; p.Through >= second {
				b.tb.Errorf("through %d: a transaction has drawn a number below %d and may still commit", p.Through, second)
			}
			<-time.After(60 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		b.tb.Fatal(err)
	}
	if got := b.waiting(outbox, nil, b.keys.drawnFirst("late", "early")...); len(got) == 2 {
		first = got[0].Number
	}
	if b.h.ThroughUnknown {
		b.tb.Log("not checked: that it is known later that all is committed")
		return
	}
	for deadline := time.Now().Add(patience); ; {
		through := b.pending(outbox, func(q *stores.PendingQuery) { q.After = first - 1 }).Through
		if through >= second {
			return
		}
		if time.Now().After(deadline) {
			b.tb.Fatalf("through %d for %v, though nobody writes and %d is committed", through, patience, second)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// outboxYounger has a transaction draw its number first and commit last of three, though it
// began to write after another one that has ended.
func (b *bench) outboxYounger() {
	store, outbox := b.openOutbox()
	if store.Capabilities().SingleWriter {
		b.tb.Log("not checked: transactions that write run one after another")
		return
	}
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
			p := publisher(stores.PublisherConfig{})
			if err := p.Publish(topic, messagesOf("older")...); err != nil {
				return err
			}
			close(begun)
			<-goOn
			return p.Publish(topic, messagesOf("older again")...)
		})
	}()
	<-begun
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		err := publisher(stores.PublisherConfig{}).Publish(topic, messagesOf("younger")...)
		close(goOn)
		if err := errors.Join(err, <-ended); err != nil {
			return err
		}
		for range 8 {
			p := b.pending(outbox, nil)
			if len(p.Outputs) != 2 {
				b.tb.Fatalf("%+v", p)
			}
			if last := p.Outputs[1].Number; p.Through >= last {
				b.tb.Errorf("through %d: a transaction has drawn a number below %d and may still commit", p.Through, last)
			}
			<-time.After(60 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		b.tb.Fatal(err)
	}
	if b.keys.none { // the last two are not in order
		b.waiting(outbox, nil, "older", "older again", "younger")
		return
	}
	b.waiting(outbox, nil, "older", "younger", "older again")
}

// manyIDs returns ids for as many outputs as a transaction takes.
func (b *bench) manyIDs() []string {
	ids := make([]string, cmp.Or(b.h.MaxOutputs, 10_000))
	for i := range ids {
		ids[i] = fmt.Sprintf("%d/k%d", i, i%7)
	}
	return ids
}

// large returns a large payload: the text, repeated.
func (b *bench) large(text string) []byte {
	n := 1 << 18
	if most := b.h.MaxOutputBytes; most > 0 {
		n = most/len(text) - 64
	}
	return bytes.Repeat([]byte(text), n)
}

func (b *bench) outboxMany() {
	store, outbox := b.openOutbox()
	ids := b.manyIDs()
	b.say(store, stores.PublisherConfig{}, ids...)
	got := b.allWaiting(outbox)
	if !slices.Equal(got, ids) {
		b.tb.Errorf("%d of %d are there, in order: %v", len(got), len(ids), slices.Equal(got, ids[:min(len(got), len(ids))]))
	}
}
