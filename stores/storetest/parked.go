package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The whole inbox with its retry worker: what fails is parked, acked and run again.
func parkedChecks(h *Harness) []check {
	checks := []check{
		{name: "fails", run: func(b *bench) { b.tellParked("fails", misconduct{want: mustFail, end: fails}) }},
		{name: "panics", run: func(b *bench) { b.tellParked("panics", misconduct{want: mustFail, act: panics}) }},
		{name: "exits its goroutine", run: func(b *bench) { b.tellParked("exits", misconduct{want: mustFail, act: exits}) }},
		{name: "run twice in one transaction", run: func(b *bench) { b.tellParked("twice", misconduct{want: mustFail, wrap: twice, end: hides}) }},
		{name: "statements", run: parkedStatements},
		{name: "poison", run: poison},
		{name: "conflict", run: parkedConflict},
		{name: "workers that come and go", run: shortWorkers},
		{name: "on a router", run: parkedOnRouter},
	}
	for _, act := range slices.Sorted(maps.Keys(h.Acts)) {
		conduct := h.Acts[act]
		checks = append(checks, check{name: "act " + string(act), run: func(b *bench) {
			m := expectations[act]
			if h.Unpreventable[act] != "" {
				m.unpreventable, m.errs = true, nil
			}
			m.act = func(ctx context.Context, _ *message.Message) error { return conduct(ctx, b.db) }
			for _, end := range []ending{hides, fails} {
				m.end = end
				b.tellParked(string(act)+", "+string(end), m)
			}
		}})
	}
	return checks
}

// work runs a retry worker of the inbox for the suite's consumer until done.
func (b *bench) work(in *middleware.Inbox, h message.HandlerFunc, done func() bool) {
	b.tb.Helper()
	worker, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
		Handlers:    map[string]message.HandlerFunc{"": h}, // its name where there is no router
		Concurrency: 2, PollInterval: 5 * time.Millisecond,
	})
	if err != nil {
		b.tb.Fatalf("NewRetryWorker: %v", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	if !poll(b.ctx, patience, done) {
		b.tb.Errorf("the retry worker is not done after %s: %+v", patience, worker.Stats())
	}
	cancel()
	if err := <-stopped; err != nil {
		b.tb.Errorf("RetryWorker.Run: %v", err)
	}
}

// tellParked tells the story of a misconduct with an inbox that parks.
func (b *bench) tellParked(name string, m misconduct) {
	b.tb.Helper()
	in := b.service(b.open(), parking)
	s := b.story(name, m)
	s.throughInbox(in)
	b.paired()
}

func parkedStatements(b *bench) {
	store := b.open()
	in := b.service(store, parking)
	way := b.h.ordinary()
	if way.NotSQL {
		return
	}
	for i, st := range statements {
		if st.parks || st.quoting || b.unnoticed(store, st) {
			continue
		}
		if i%8 == 7 {
			b.clear()
		}
		m := misconduct{want: st.want, act: sends(way, st.steps), end: hides, unpreventable: way.Unpreventable != ""}
		b.story(fmt.Sprintf("%d %q", i, strings.Join(st.steps, " | ")), m).throughInbox(in)
	}
	b.paired()
	b.healthy(store)
}

// poison: messages that always fail end among the dead letters, and nothing else does.
func poison(b *bench) {
	store := b.open()
	const attempts = 3
	in := b.service(store, parking, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = attempts })
	var mu sync.Mutex
	runs := make(map[string]int)
	h := b.handler(func(ctx context.Context, msg *message.Message) error {
		mu.Lock()
		runs[msg.UUID]++
		run := runs[msg.UUID]
		mu.Unlock()
		if err := b.h.Write(ctx, Effect{Key: msg.UUID, Label: "first", Run: run}); err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(msg.UUID, "permanent"):
			return middleware.Permanent(errHandler)
		case strings.HasPrefix(msg.UUID, "poison"):
			return errHandler
		}
		return nil
	})
	ids := []string{"poison 1", "good 1", "permanent", "poison 2", "good 2"}
	deliver := func() {
		for _, id := range ids {
			if a := b.deliver(in.Middleware(h), message.NewMessage(id, []byte(id))); !a.acked {
				b.tb.Errorf("%s: not acked: %v", id, a.err)
			}
		}
	}
	deliver()
	settled := func() bool {
		return !slices.ContainsFunc(b.failures(), func(f failed) bool { return f.state.Status == stores.StatusPending })
	}
	b.work(in, h, settled)
	deliver() // changes nothing
	for id, want := range map[string]int{"poison 1": attempts, "poison 2": attempts, "permanent": 1, "good 1": 1, "good 2": 1} {
		if runs[id] != want {
			b.tb.Errorf("%s ran %d times, want %d", id, runs[id], want)
		}
		good := strings.HasPrefix(id, "good")
		if got := b.effects(id); (len(got) == 1) != good || len(got) > 1 {
			b.tb.Errorf("%s left effects %v", id, got)
		}
		key := messageKey(b.tb, message.NewMessage(id, nil))
		f := b.failureOf(key)
		if good != (f == nil) {
			b.tb.Errorf("%s is among the failures as %+v", id, f)
		}
		if f != nil && (f.state.Status != stores.StatusFailed || f.state.Attempts != want || f.content.State != stores.ContentKept || string(f.content.Payload) != id) {
			b.tb.Errorf("%s is kept as %+v, want failed after %d attempts, with its content", id, f, want)
		}
	}
	b.paired()
}

// parkedConflict: another message under the id of one that is parked is kept apart, and
// neither runs in the other's place.
func parkedConflict(b *bench) {
	in := b.service(b.open(), parking)
	s := b.story("conflict", misconduct{want: mustFail, end: fails})
	h := in.Middleware(s.handler())
	first, second := message.NewMessage(s.name, []byte("payload")), message.NewMessage(s.name, []byte("another payload"))
	for _, msg := range []*message.Message{first, second, second, first} {
		if a := b.deliver(h, msg); !a.acked {
			b.tb.Errorf("not acked: %v", a.err)
		}
	}
	key := messageKey(b.tb, first)
	if kept := b.quarantinedAs(key); len(kept) != 1 || kept[0].Reason != stores.ReasonConflict || string(kept[0].Payload) != "another payload" || kept[0].Seen != 2 {
		b.tb.Errorf("another message under the id of a parked one is kept as %+v", kept)
	}
	if s.ran() != 1 {
		b.tb.Errorf("the handler ran %d times, want once", s.ran())
	}
	b.work(in, s.handler(), func() bool { return b.failureOf(key) == nil })
	s.check(key, true, "after a retry worker ran it")
	b.paired()
}

// shortWorkers: a worker that is stopped in the middle leaves nothing reserved that it
// does not run.
func shortWorkers(b *bench) {
	const messages = 30
	in := b.service(b.open(), parking)
	var mu sync.Mutex
	runs := make(map[string]int)
	h := b.handler(func(ctx context.Context, msg *message.Message) error {
		mu.Lock()
		runs[msg.UUID]++
		run := runs[msg.UUID]
		mu.Unlock()
		if run == 1 {
			return errHandler
		}
		return b.h.Write(ctx, Effect{Key: msg.UUID, Label: "first", Run: run})
	})
	for i := range messages {
		id := fmt.Sprint("message ", i)
		if a := b.deliver(in.Middleware(h), message.NewMessage(id, []byte(id))); !a.acked {
			b.tb.Errorf("%s: not acked: %v", id, a.err)
		}
	}
	for before := 0; before < messages; before = len(b.allEffects()) {
		b.work(in, h, func() bool { return len(b.allEffects()) > before })
		if b.tb.Failed() {
			break
		}
	}
	if got := b.allEffects(); len(got) != messages {
		b.tb.Errorf("%d messages left %d effects", messages, len(got))
	}
	b.paired()
}

// parkedOnRouter: the router of a program, a broker that redelivers, and a worker for
// all its handlers.
func parkedOnRouter(b *bench) {
	const messages = 18
	in := b.service(b.open(), parking, func(c *middleware.InboxConfig) { c.Handler = "" })
	r := b.routing()
	r.router.AddMiddleware(in.Middleware)
	names := []string{"stock", "mail"}
	for _, name := range names {
		u := &unruly{b: b, name: name, way: b.h.ordinary(), runs: make(map[string]int)}
		r.handle(name, b.h.Handler(u.handle))
	}
	worker, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{Handlers: r.router.Handlers(), PollInterval: 10 * time.Millisecond})
	if err != nil {
		b.tb.Fatalf("NewRetryWorker: %v", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- worker.Run(ctx) }()
	r.start()
	for range 2 {
		for i := range messages {
			id := fmt.Sprint("message ", i)
			r.publish(message.NewMessage(id, []byte(id)))
		}
	}
	effects := len(names) * messages * 2
	r.settled(func() bool { return len(b.allEffects()) >= effects && len(b.failures()) == 0 })
	for _, f := range b.failures() {
		b.tb.Errorf("%s is left: %+v; %+v", f.key, f, worker.Stats())
	}
	cancel()
	if err := <-stopped; err != nil {
		b.tb.Errorf("RetryWorker.Run: %v", err)
	}
	if got := b.allEffects(); len(got) != effects {
		b.tb.Errorf("%d messages left %d effects in %d handlers, want %d", messages, len(got), len(names), effects)
	}
	if rows := b.rows(); len(rows) != len(names)*messages || len(b.quarantined()) > 0 {
		b.tb.Errorf("%d messages left %d rows, and %d in quarantine", messages, len(rows), len(b.quarantined()))
	}
	if stats := worker.Stats(); stats.Completed == 0 {
		b.tb.Errorf("the worker has run nothing: %+v", stats)
	}
	b.paired()
}
