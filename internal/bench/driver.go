package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
)

// driver delivers messages to a handler, in a closed loop unless the load has a pace.
type driver struct {
	workers int
	deliver func(*message.Message) error // returns when the message is settled
	close   func() error
}

func newDriver(ctx context.Context, h *handling, routed bool, workers int) (*driver, error) {
	if routed {
		return newRouted(ctx, h, workers)
	}
	handler := message.HandlerFunc(func(msg *message.Message) ([]*message.Message, error) {
		return nil, h.handler(msg)
	})
	for _, m := range h.middleware {
		handler = m(handler)
	}
	deliver := func(msg *message.Message) error {
		_, err := handler(msg)
		return err
	}
	return &driver{workers: workers, deliver: deliver, close: func() error { return nil }}, nil
}

// run delivers n messages and returns how long it took, and each of them. At a pace a message's
// time begins when it is due, even if no worker is free then.
func (d *driver) run(l load, n int) (time.Duration, []time.Duration, error) {
	latencies := make([]time.Duration, n)
	var (
		taken   atomic.Int64
		workers errgroup.Group
	)
	start := time.Now()
	for worker := range d.workers {
		pick := l.picker(worker, d.workers)
		workers.Go(func() error {
			for begun := time.Now(); ; {
				i := int(taken.Add(1)) - 1
				if i >= n {
					return nil
				}
				next := pick(i)
				if l.pace > 0 {
					begun = l.due(start, i)
					<-time.After(time.Until(begun))
				}
				if err := d.deliver(next.msg); err != nil {
					taken.Store(int64(n)) // the others need not go on
					return err
				}
				if !l.again {
					next.settled()
				}
				now := time.Now()
				latencies[i] = now.Sub(begun)
				begun = now
			}
		})
	}
	err := workers.Wait()
	return time.Since(start), latencies, err
}

// Names that the router and the inbox see.
const (
	handlerName = "stock"
	topicName   = "orders"
)

// newRouted starts a Watermill router with the handler, on a subscriber that hands
// out what is delivered and does nothing else.
func newRouted(ctx context.Context, h *handling, workers int) (*driver, error) {
	log := &lastError{}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, log)
	if err != nil {
		return nil, err
	}
	source := source{make(chan *message.Message)}
	router.AddConsumerHandler(handlerName, topicName, source, h.handler).AddMiddleware(h.middleware...)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, fmt.Errorf("the router did not start: %w", err)
	}
	deliver := func(msg *message.Message) error {
		source.out <- msg
		select {
		case <-msg.Acked():
			return nil
		case <-msg.Nacked():
			return fmt.Errorf("a message was nacked: %w", log.get())
		}
	}
	closeAll := func() error { return errors.Join(router.Close(), <-ended) }
	return &driver{workers: workers, deliver: deliver, close: closeAll}, nil
}

// source is the subscriber: what is sent to out is what it gives.
type source struct{ out chan *message.Message }

func (s source) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.out, nil
}

// Close is called once, by the router.
func (s source) Close() error {
	close(s.out)
	return nil
}

// lastError is a logger that keeps the last error, which says why a message was
// nacked.
type lastError struct {
	watermill.NopLogger
	err atomic.Pointer[error]
}

func (l *lastError) Error(msg string, err error, _ watermill.LogFields) {
	err = fmt.Errorf("%s: %w", msg, err)
	l.err.Store(&err)
}

func (l *lastError) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *lastError) get() error {
	if err := l.err.Load(); err != nil {
		return *err
	}
	return errors.New("nobody said why")
}
