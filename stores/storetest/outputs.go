package storetest

import (
	"database/sql"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// outputChecks are of what attempts say with their commit. That it commits with the attempt
// whatever the handler does to its transaction is part of every story.
func outputChecks(h *Harness) []check {
	if h.Transact == nil {
		return nil
	}
	return []check{
		{name: "they commit with the attempt", run: func(b *bench) { b.outputsCommit() }},
		{name: "content byte by byte", run: func(b *bench) { b.outputsContent() }},
		{name: "what is no output", run: func(b *bench) { b.outputsInvalid() }},
		{name: "none after the end", run: func(b *bench) { b.outputsAfterTheEnd() }},
		{name: "their numbers are drawn last", run: func(b *bench) { b.outputsLast() }},
		{name: "an order key has one writer", run: func(b *bench) { b.outputsOneWriter() }},
		{name: "many of one attempt", run: func(b *bench) { b.outputsMany() }},
		{name: "more than fit", run: func(b *bench) { b.outputsTooMany() }},
		{name: "large ones", run: func(b *bench) { b.outputsLarge() }},
		{name: "a takeover says something", run: func(b *bench) { b.outputsOfATakeover() }},
		{name: "through the inbox", run: func(b *bench) { b.outputsThroughInbox() }},
		{name: "refused at capture", run: func(b *bench) { b.outputsRefused() }},
	}
}

// openBoth opens a store that knows the consumer of the suite.
func (b *bench) openBoth() (stores.Store, stores.Outbox) {
	b.tb.Helper()
	store := b.open()
	return store, b.outboxOf(store)
}

func (b *bench) emitter(attempt stores.Attempt) stores.Emitter {
	b.tb.Helper()
	e, ok := attempt.(stores.Emitter)
	if !ok {
		b.tb.Fatalf("a %T is no stores.Emitter, though its store has an outbox", attempt)
	}
	return e
}

func (b *bench) emit(attempt stores.Attempt, outputs ...stores.Output) {
	b.tb.Helper()
	for i := range outputs {
		if b.keys.none {
			outputs[i].OrderKey = nil
		}
	}
	if err := b.emitter(attempt).Emit(outputs); err != nil {
		b.tb.Fatalf("Emit: %v", err)
	}
}

// outputsOf makes outputs with these ids, each with an order key if there is one after a slash.
func outputsOf(ids ...string) (outputs []stores.Output) {
	for _, id := range ids {
		o := stores.Output{ID: id, Topic: topic, Payload: []byte("content of " + id)}
		if _, key, ok := strings.Cut(id, "/"); ok {
			o.OrderKey = []byte(key)
		}
		outputs = append(outputs, o)
	}
	return outputs
}

func (b *bench) outputsCommit() {
	store, outbox := b.openBoth()
	a := b.win(store, claimFor("first", "p"))
	b.write(a, Effect{Key: "first", Label: "first", Run: 1})
	b.emit(a, outputsOf("a", "b/k")...)
	b.emit(a)
	b.emit(a, outputsOf("c/l")...)
	b.waiting(outbox, nil)
	b.commit(a)
	b.waiting(outbox, nil, "a", "b/k", "c/l")
	if got := b.effects("first"); len(got) != 1 {
		b.tb.Errorf("effects: %v", got)
	}
	b.expect(store, claimFor("first", "p"), stores.Duplicate)

	a = b.win(store, claimFor("second", "p"))
	b.write(a, Effect{Key: "second", Label: "first", Run: 1})
	b.emit(a, outputsOf("d", "e/k")...)
	b.rollback(a)
	b.waiting(outbox, nil, "a", "b/k", "c/l")

	a = b.win(store, claimFor("second", "p"))
	b.emit(a, outputsOf("f")...)
	b.commit(a)
	b.waiting(outbox, nil, "a", "b/k", "c/l", "f")
}

func (b *bench) outputsContent() {
	store, outbox := b.openBoth()
	trace, _ := stores.ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	outputs := []stores.Output{
		{ID: "A", Destination: "über", Payload: nil},
		{ID: "a", Topic: "1000", Payload: []byte{}},
		{ID: "a ?$1", Topic: "what? it's $1", Payload: []byte("\x00\xff'\\\"?$1")},
		{ID: "id \x00\xff", OrderKey: b.keys.of("k\x00\xff"), Type: "OrderPlaced ü?", Metadata: map[string]string{"n\xff": "\x00v", "ü?": ""}, Payload: []byte("p")},
		{ID: strings.Repeat("i", stores.MaxIDBytes), OrderKey: b.keys.of(strings.Repeat("k", stores.MaxOrderKeyBytes)), Codec: "codec", Payload: []byte("o")},
		{ID: "traced", TraceParent: trace, Metadata: map[string]string{"traceparent": trace.String()}, Payload: []byte("t")},
	}
	for i := range outputs {
		if outputs[i].Topic == "" {
			outputs[i].Topic = topic
		}
	}
	a := b.win(store, claimFor("first", "p"))
	b.emit(a, outputs...)
	b.commit(a)
	got := b.pending(outbox, nil).Outputs
	if len(got) != len(outputs) {
		b.tb.Fatalf("there wait %d, want %d", len(got), len(outputs))
	}
	for i, want := range outputs {
		o := got[i]
		same := maps.Equal(o.Metadata, want.Metadata)
		o.Metadata, want.Metadata = nil, nil
		if o.Payload == nil {
			o.Payload = []byte{}
		}
		if want.Payload == nil {
			want.Payload = []byte{}
		}
		if !same || !reflect.DeepEqual(o.Output, want) || o.Err != nil {
			b.tb.Errorf("output %d is %+v, want %+v", i, got[i], outputs[i])
		}
	}
}

func (b *bench) outputsInvalid() {
	store, outbox := b.openBoth()
	long := func(n int) string { return strings.Repeat("x", n+1) }
	a := b.win(store, claimFor("first", "p"))
	b.write(a, Effect{Key: "first", Label: "first", Run: 1})
	b.emit(a, outputsOf("good")...)
	for name, change := range map[string]func(*stores.Output){
		"no topic":     func(o *stores.Output) { o.Topic = "" },
		"a long topic": func(o *stores.Output) { o.Topic = long(stores.MaxTopicBytes) },
		"no text":      func(o *stores.Output) { o.Topic = "\xff" },
		"no id":        func(o *stores.Output) { o.ID = "" },
		"a long id":    func(o *stores.Output) { o.ID = long(stores.MaxIDBytes) },
		"a long key":   func(o *stores.Output) { o.OrderKey = []byte(long(stores.MaxOrderKeyBytes)) },
		"a far place":  func(o *stores.Output) { o.Destination = long(stores.MaxDestinationBytes) },
		"a long type":  func(o *stores.Output) { o.Type = long(stores.MaxDestinationBytes) },
	} {
		outputs := outputsOf("with it", "bad")
		change(&outputs[1])
		wantErr(b.tb, name, b.emitter(a).Emit(outputs), stores.ErrInvalidOutput)
	}
	b.commit(a)
	b.waiting(outbox, nil, "good")
}

func (b *bench) outputsAfterTheEnd() {
	store, outbox := b.openBoth()
	for i, end := range []func(stores.Attempt){b.commit, b.rollback} {
		a := b.win(store, claimFor(fmt.Sprint("claim ", i), "p"))
		end(a)
		wantErr(b.tb, "Emit after the end", b.emitter(a).Emit(outputsOf("late")), stores.ErrTxClosed)
		_ = a.Commit(b.ctx)
	}
	b.waiting(outbox, nil)
}

func (b *bench) outputsLast() {
	store, outbox := b.openBoth()
	if store.Capabilities().SingleWriter {
		b.tb.Log("not checked: transactions that write run one after another")
		return
	}
	a := b.win(store, claimFor("first", "p"))
	b.emit(a, outputsOf("last")...)
	b.say(store, stores.PublisherConfig{}, "before")
	b.commit(a)
	b.waiting(outbox, nil, "before", "last")
}

func (b *bench) outputsOneWriter() {
	store, outbox := b.openBoth()
	if c := store.Capabilities(); c.SingleWriter || c.OutputsUnordered {
		b.tb.Logf("not checked: %+v", c)
		return
	}
	var first, other stores.Attempt
	done := make(chan error, 1)
	err := b.h.Transact(b.ctx, store, func(publisher func(stores.PublisherConfig) message.Publisher) error {
		if err := publisher(stores.PublisherConfig{OrderKey: b.keys.byOrderMetadata}).Publish(topic, messagesOf("a/k")...); err != nil {
			return err
		}
		other = b.win(store, claimFor("other", "p"))
		b.emit(other, outputsOf("b/l")...)
		b.commit(other)
		first = b.win(store, claimFor("first", "p"))
		b.emit(first, outputsOf("c/k")...)
		go func() { done <- first.Commit(b.ctx) }()
		select {
		case err := <-done:
			b.tb.Errorf("a second writer of the order key did not wait (%v)", err)
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	})
	if err != nil {
		b.tb.Fatal(err)
	}
	if err := <-done; err != nil {
		b.tb.Errorf("Commit: %v", err)
	}
	b.waiting(outbox, nil, "a/k", "b/l", "c/k")
}

func (b *bench) outputsMany() {
	store, outbox := b.openBoth()
	ids := b.manyIDs()
	a := b.win(store, claimFor("first", "p"))
	b.emit(a, outputsOf(ids...)...)
	b.commit(a)
	if got := b.allWaiting(outbox); !slices.Equal(got, ids) {
		b.tb.Errorf("%d of %d are there, in order: %v", len(got), len(ids), slices.Equal(got, ids[:min(len(got), len(ids))]))
	}
}

// outputsTooMany: a call that does not fit adds nothing, and the attempt can go on.
func (b *bench) outputsTooMany() {
	store, outbox := b.openBoth()
	if b.h.MaxOutputs == 0 {
		b.tb.Log("not checked: the database takes any number")
		return
	}
	a := b.win(store, claimFor("first", "p"))
	b.emit(a, outputsOf("a", "b")...)
	many := outputsOf(b.manyIDs()[:b.h.MaxOutputs-1]...)
	large := outputsOf("large")
	large[0].Payload = make([]byte, b.h.MaxOutputBytes+1)
	for i := range many {
		many[i].OrderKey = nil
	}
	wantErr(b.tb, "one too many", b.emitter(a).Emit(many), stores.ErrTooLarge)
	wantErr(b.tb, "one too large", b.emitter(a).Emit(large), stores.ErrTooLarge)
	b.commit(a)
	b.waiting(outbox, nil, "a", "b")
}

func (b *bench) outputsLarge() {
	store, outbox := b.openBoth()
	outputs := outputsOf("a/k", "b", "c/k")
	outputs[0].Payload = b.large("large\x00")
	outputs[2].Payload = b.large("\xfflarge")[:1<<16]
	a := b.win(store, claimFor("first", "p"))
	b.write(a, Effect{Key: "first", Label: "first", Run: 1})
	b.emit(a, outputs...)
	b.commit(a)
	got := b.pending(outbox, func(q *stores.PendingQuery) { q.Bytes = 1 << 30 }).Outputs
	if len(got) != len(outputs) {
		b.tb.Fatalf("there wait %d, want %d", len(got), len(outputs))
	}
	for i, o := range outputs {
		if string(got[i].Payload) != string(o.Payload) {
			b.tb.Errorf("%s has %d bytes, or others, want %d", o.ID, len(got[i].Payload), len(o.Payload))
		}
	}
}

func (b *bench) outputsOfATakeover() {
	store, outbox := b.openBoth()
	claim := claimFor("first", "p")
	version := b.record(store, failureOf(claim))
	a := b.take(store, claim, version)
	b.emit(a, outputsOf("a/k", "b")...)
	b.rollback(a)
	b.waiting(outbox, nil)
	a = b.take(store, claim, version)
	b.emit(a, outputsOf("c/k")...)
	b.commit(a)
	b.waiting(outbox, nil, "c/k")
	b.paired()
}

// allWaiting returns the ids of all outputs.
func (b *bench) allWaiting(outbox stores.Outbox) (ids []string) {
	b.tb.Helper()
	for after, more := int64(0), true; more; {
		p := b.pending(outbox, func(q *stores.PendingQuery) { q.After, q.Limit, q.Bytes = after, 3000, 64<<20 })
		for _, o := range p.Outputs {
			ids, after = append(ids, o.ID), o.Number
		}
		more = p.More
	}
	return ids
}

// said returns how many outputs with an id are committed.
func (b *bench) said(id string) (n int) {
	b.tb.Helper()
	b.query("SELECT message_id FROM millpond_outbox", func(rows *sql.Rows) error {
		var found []byte
		err := rows.Scan(&found)
		if string(found) == id {
			n++
		}
		return err
	})
	return n
}
