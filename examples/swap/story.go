package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/router"
)

// story is what happens: the service runs, the shop publishes, and the books are checked.
func story(ctx context.Context, o options, out, progress io.Writer) error {
	config, err := router.LoadConfig(o.config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "swap-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// Nothing of an earlier run is in the way, whatever the broker has kept.
	if config.Store.URL, err = fresh(config.Store.URL, dir); err != nil {
		return err
	}
	topic := "swap-orders-" + uuid.NewString()
	config.Broker.Group = topic

	seen := newWatch()
	config.Inbox.Hooks = append(config.Inbox.Hooks, seen)
	shop := orders()
	svc, in, err := newWarehouse(ctx, config, topic, &warehouse{shelves: newShelves(shop)})
	if err != nil {
		return err
	}
	defer func() { _ = svc.Close() }()
	defer func() { _ = in.remove(context.WithoutCancel(ctx)) }()
	if err := in.prepare(ctx); err != nil {
		return err
	}

	service := start(ctx, svc)
	r, err := sell(service.ctx, o, svc, in, topic, shop, seen, progress)
	switch ended := service.stop(); {
	case ended != nil:
		return ended
	case errors.Is(err, errStopped), ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return err
	}
	if err := r.show(out); err != nil {
		return err
	}
	if !r.right() {
		return errors.New("the books do not say what the orders say")
	}
	return nil
}

// sell publishes the orders, waits until all are settled and compares.
func sell(ctx context.Context, o options, svc *router.Service, in database, topic string, shop []order, w *watch, progress io.Writer) (result, error) {
	select {
	case <-svc.Watermill().Running():
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	}
	messages, err := messages(shop)
	if err != nil {
		return result{}, err
	}
	fmt.Fprintf(progress, "%s: %d messages\n", svc.Config().Broker.URL, len(messages))
	if err := svc.Publisher().Publish(topic, messages...); err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("nothing more within %s", o.timeout))
	defer cancel()
	if err := w.settled(ctx, svc.Store(), len(messages)); err != nil {
		return result{}, err
	}
	b, err := readBooks(ctx, in, svc.Store())
	if err != nil {
		return result{}, err
	}
	return compare(shop, b, w.seen()), nil
}

// running is a service that runs.
type running struct {
	ctx    context.Context // ends with the service
	cancel context.CancelFunc
	done   chan struct{}
	err    error // when done is closed
}

var errStopped = errors.New("the service has stopped")

func start(ctx context.Context, svc *router.Service) *running {
	alive, died := context.WithCancelCause(ctx)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{ctx: alive, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = svc.Run(ctx) // stops at SIGTERM and SIGINT, too
		died(errStopped)
	}()
	return r
}

func (r *running) stop() error {
	r.cancel()
	<-r.done
	return r.err
}
