package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Watermill's router and a broker that redelivers, around the inbox.
func routerChecks() []check {
	return []check{
		{name: "two handlers of one topic, failing in all ways", run: routed},
		{name: "an inbox on the router and on the handler", run: routedTwice},
		{name: "one fixed name for two handlers", run: routedUnderOneName},
	}
}

// routing is a router with an in-process broker, running until the check ends.
type routing struct {
	b         *bench
	router    *message.Router
	broker    *memory.Broker
	publisher message.Publisher
	stopped   chan struct{}
}

func (b *bench) routing() *routing {
	b.tb.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		b.tb.Fatalf("storetest: %v", err)
	}
	broker, err := memory.New(memory.Config{RedeliveryDelay: time.Millisecond})
	if err != nil {
		b.tb.Fatalf("storetest: %v", err)
	}
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		b.tb.Fatalf("storetest: %v", err)
	}
	return &routing{b: b, router: router, broker: broker, publisher: publisher, stopped: make(chan struct{})}
}

// handle adds a handler with a group of its own, so that it gets every message.
func (r *routing) handle(name string, h message.NoPublishHandlerFunc) *message.Handler {
	r.b.tb.Helper()
	subscriber, err := r.broker.Subscriber(brokers.SubscriberConfig{Group: name, InFlight: 8})
	if err != nil {
		r.b.tb.Fatalf("storetest: %v", err)
	}
	return r.router.AddConsumerHandler(name, topic, subscriber, h)
}

func (r *routing) start() {
	r.b.tb.Helper()
	go func() {
		defer close(r.stopped)
		if err := r.router.Run(r.b.ctx); err != nil {
			r.b.tb.Errorf("storetest: the router: %v", err)
		}
	}()
	select {
	case <-r.router.Running():
	case <-r.stopped:
	}
}

func (r *routing) publish(messages ...*message.Message) {
	r.b.tb.Helper()
	if err := r.publisher.Publish(topic, messages...); err != nil {
		r.b.tb.Fatalf("storetest: publish: %v", err)
	}
}

// settled waits until the broker has nothing left to deliver, and stops.
func (r *routing) settled(done func() bool) {
	r.b.tb.Helper()
	if !poll(r.b.ctx, 2*patience, done) {
		r.b.tb.Errorf("the messages are not settled after %s: effects of %d, %d in quarantine", 2*patience, len(r.b.allEffects()), len(r.b.quarantined()))
	}
	if err := r.router.Close(); err != nil {
		r.b.tb.Errorf("storetest: stop the router: %v", err)
	}
	<-r.stopped
	if err := r.broker.Close(); err != nil {
		r.b.tb.Errorf("storetest: close the broker: %v", err)
	}
}

// unruly is a handler that in its first run of a message does something else for
// each of them.
type unruly struct {
	b    *bench
	name string
	way  Way

	mu   sync.Mutex
	runs map[string]int
}

func (u *unruly) handle(ctx context.Context, msg *message.Message) error {
	u.mu.Lock()
	u.runs[msg.UUID]++
	run := u.runs[msg.UUID]
	number := len(u.runs)
	u.mu.Unlock()
	key := u.name + " " + msg.UUID
	err := u.b.h.Write(ctx, Effect{Key: key, Label: "first", Run: run})
	if err == nil && run == 1 {
		switch number % 6 {
		case 1:
			return errHandler
		case 2:
			panic("storetest: the handler panics")
		case 3:
			runtime.Goexit()
		case 4:
			if u.way.Unpreventable != "" {
				return errHandler // the message would end in quarantine
			}
			_ = u.way.Exec(ctx, "ROLLBACK")
			_ = u.b.h.Write(ctx, Effect{Key: key, Label: "second", Run: run})
			return nil
		case 5:
			_ = u.way.Exec(ctx, takenTwice)
		}
	}
	return errors.Join(err, u.b.h.Write(ctx, Effect{Key: key, Label: "second", Run: run}))
}

func routed(b *bench) {
	const messages = 24
	in := b.service(b.open(), func(c *middleware.InboxConfig) { c.Handler = ""; c.CacheSize = 10 })
	r := b.routing()
	r.router.AddMiddleware(in.Middleware)
	handlers := []string{"stock", "mail"}
	for _, name := range handlers {
		u := &unruly{b: b, name: name, way: b.h.ordinary(), runs: make(map[string]int)}
		r.handle(name, b.h.Handler(u.handle))
	}
	r.start()
	for range 3 {
		for i := range messages {
			id := fmt.Sprint("message ", i)
			r.publish(message.NewMessage(id, []byte(id)))
		}
	}
	r.publish(message.NewMessage("message 0", []byte("another payload")), message.NewMessage("", []byte("without an id")))
	effects := len(handlers) * messages * 2
	r.settled(func() bool { return len(b.allEffects()) >= effects && len(b.quarantined()) >= 2*len(handlers) })

	if got := b.allEffects(); len(got) != effects {
		b.tb.Errorf("%d messages left %d effects in %d handlers, want %d: %v", messages, len(got), len(handlers), effects, got)
	}
	if rows := b.rows(); len(rows) != len(handlers)*messages {
		b.tb.Errorf("%d messages left %d rows", messages, len(rows))
	}
	reasons := make(map[stores.Reason]int)
	for _, row := range b.quarantined() {
		reasons[row.Reason]++
	}
	if reasons[stores.ReasonConflict] != 2 || reasons[stores.ReasonNoKey] != 2 || len(reasons) != 2 {
		b.tb.Errorf("in quarantine are %v, want a conflict and one without id for each handler", reasons)
	}
}

func routedTwice(b *bench) {
	in := b.service(b.open(), func(c *middleware.InboxConfig) { c.Handler = "" })
	r := b.routing()
	r.router.AddMiddleware(in.Middleware)
	h := b.effect("nested")
	r.handle("stock", func(msg *message.Message) error {
		_, err := h(msg)
		return err
	}).AddMiddleware(in.Middleware)
	r.start()
	r.publish(message.NewMessage("nested", nil))
	r.settled(func() bool { return len(b.effects("nested")) > 0 })
	if got := b.effects("nested"); len(got) != 1 {
		b.tb.Errorf("effects %v are committed, want one", got)
	}
}

// routedUnderOneName: an inbox with a fixed name serves one handler. The other one
// must not lose its messages to it.
func routedUnderOneName(b *bench) {
	in := b.service(b.open(), func(c *middleware.InboxConfig) { c.Hold.Limit = 20 * time.Millisecond })
	r := b.routing()
	var mu sync.Mutex
	refused := make(map[string]error)
	observe := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := next(msg)
			mu.Lock()
			defer mu.Unlock()
			refused[message.HandlerNameFromCtx(msg.Context())] = err
			return outputs, err
		}
	}
	r.router.AddMiddleware(observe, in.Middleware)
	for _, name := range []string{"stock", "mail"} {
		h := b.effect(name)
		r.handle(name, func(msg *message.Message) error {
			_, err := h(msg)
			return err
		})
	}
	r.start()
	r.publish(message.NewMessage("id", nil))
	r.settled(func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(refused) == 2
	})
	served := len(b.allEffects())
	shared := 0
	for _, err := range refused {
		if errors.Is(err, middleware.ErrConsumerShared) && errors.Is(err, middleware.ErrNotNow) {
			shared++
		}
	}
	if served != 1 || shared != 1 {
		b.tb.Errorf("two handlers under one fixed name: %d effects, errors %v; want one handler served and one refused with ErrConsumerShared", served, refused)
	}
}
