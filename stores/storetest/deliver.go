package storetest

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// service returns an inbox as one process has it, with waits that suit a test and
// without the cache, so that every delivery asks the store. The broker keeps what fails,
// as long as no change has it parked.
func (b *bench) service(store middleware.Store, changes ...func(*middleware.InboxConfig)) *middleware.Inbox {
	b.tb.Helper()
	config := middleware.InboxConfig{
		Service:        consumer.Service,
		Handler:        consumer.Handler,
		HandlerTimeout: patience,
		CommitTimeout:  patience / 2,
		RecordTimeout:  patience,
		Hold:           middleware.HoldConfig{Limit: patience, MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond},
		Retry: middleware.RetryPolicy{
			Placement: stores.PlacementRedelivered,
			Backoff:   middleware.BackoffConfig{Min: time.Millisecond, Max: 2 * time.Millisecond},
		},
		CacheSize: -1,
		Logger:    slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	in, err := middleware.NewInbox(store, config)
	if err != nil {
		b.tb.Fatalf("NewInbox: %v", err)
	}
	return in
}

// parking has the store keep what fails.
func parking(c *middleware.InboxConfig) { c.Retry.Placement = stores.PlacementParked }

// answer is what a router makes of one delivery.
type answer struct {
	acked    bool
	err      error
	panicked any
	exited   bool
}

// deliver hands a fresh copy of the message to the handler and settles it as
// Watermill's router does: nil acks, an error or a panic nacks.
func (b *bench) deliver(h message.HandlerFunc, msg *message.Message) answer {
	b.tb.Helper()
	return b.deliverWith(h, msg, brokers.Delivery{})
}

func (b *bench) deliverWith(h message.HandlerFunc, msg *message.Message, facts brokers.Delivery) answer {
	b.tb.Helper()
	facts.Topic = topic
	msg = msg.Copy()
	ctx, cancel := context.WithCancel(brokers.WithDelivery(b.ctx, msg, facts))
	defer cancel() // subscribers end the context when the message is settled
	msg.SetContext(ctx)

	done := make(chan answer, 1)
	go route(h, msg, done)
	const limit = 3 * patience
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var a answer
	select {
	case a = <-done:
	case <-timer.C:
		b.tb.Fatalf("a delivery of %q is not settled after %s\n%s", msg.UUID, limit, stacks())
	}
	select {
	case <-msg.Acked():
		a.acked = true
	case <-msg.Nacked():
	default:
		b.tb.Errorf("a delivery of %q was neither acked nor nacked: the broker waits for ever (%+v)", msg.UUID, a)
	}
	return a
}

func route(h message.HandlerFunc, msg *message.Message, done chan<- answer) {
	a := answer{exited: true}
	defer func() { done <- a }()
	defer func() {
		if a.panicked = recover(); a.panicked != nil {
			a.exited = false
			msg.Nack()
		}
	}()
	outputs, err := h(msg)
	a.exited, a.err = false, err
	if err != nil || len(outputs) > 0 { // a consumer handler has no publisher for them
		msg.Nack()
		return
	}
	msg.Ack()
}

func stacks() []byte {
	buf := make([]byte, 1<<18)
	return buf[:runtime.Stack(buf, true)]
}

// handler is f behind the adapter's typed helper.
func (b *bench) handler(f func(ctx context.Context, msg *message.Message) error) message.HandlerFunc {
	typed := b.h.Handler(f)
	return func(msg *message.Message) ([]*message.Message, error) { return nil, typed(msg) }
}
