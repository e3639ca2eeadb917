package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// consumer is the service's handler, as millpond knows it.
var consumer = stores.Consumer{Service: "orders", Handler: "charge"}

// running is a service that runs.
type running struct {
	seen   *observer
	cancel context.CancelFunc
	done   chan struct{}
	err    error // when done is closed
}

// start starts the service as it is now.
func (s *story) start(ctx context.Context) (*running, error) {
	subscriber, err := s.broker.Subscriber(brokers.SubscriberConfig{Group: consumer.Service, InFlight: inFlight})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &running{seen: new(observer), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = serve(ctx, s.db.store, subscriber, s.db.handler(s.payments.charge), r.seen, logger(s.options, s.messages))
	}()
	return r, nil
}

func (r *running) stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// observer counts how orders end; see middleware.Hook.
type observer struct {
	mu        sync.Mutex
	atOnce    int // charged by their first attempt
	contended int // charged after contention
	later     int // charged by a later attempt
	timeouts  int
	panics    int
	declined  int
	used      int // in quarantine
}

// DeliveryEnd implements middleware.DeliveryEndHook.
func (o *observer) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case d.Result == middleware.ResultQuarantined:
		o.used++
	case d.Result == middleware.ResultCompleted && d.Retry:
		o.later++
	case d.Result == middleware.ResultCompleted && d.Runs > 1:
		o.contended++
	case d.Result == middleware.ResultCompleted:
		o.atOnce++
	case d.Class == stores.ClassTimeout:
		o.timeouts++
	case d.Class == stores.ClassPermanent:
		o.declined++
	case d.Result == middleware.ResultPanicked:
		o.panics++
	}
}

// ended is how many orders were charged, failed for good or put into quarantine.
func (o *observer) ended() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.atOnce + o.contended + o.later + o.declined + o.panics/maxAttempts + o.used
}

func (o *observer) show(out io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range []struct {
		n    int
		text string
	}{
		{o.atOnce, "charged at once"},
		{o.contended, "charged after contention for an account, tried again at once"},
		{o.later, fmt.Sprintf("charged later, after %d timeouts of the provider", o.timeouts)},
		{o.declined, "failed at once: the card is declined"},
		{o.panics / maxAttempts, fmt.Sprintf("failed after %d attempts, each of which panicked", maxAttempts)},
		{o.used, "in quarantine: another order has its id"},
	} {
		fmt.Fprintf(t, "%d\t  %s\n", line.n, line.text)
	}
	_ = t.Flush() // errors of out are those of the next line, too
}

// standing is where the orders stand.
type standing struct{ charged, pending, failed, discarded, quarantined int }

func (n standing) String() string {
	return fmt.Sprintf("charged %d, to be tried again %d, failed %d, in quarantine %d", n.charged, n.pending, n.failed, n.quarantined)
}

func (d *database) standing(ctx context.Context) (n standing, err error) {
	counts, err := d.store.Counts(ctx, 10*orderCount)
	if err != nil {
		return n, err
	}
	for _, c := range counts {
		switch c.Status {
		case stores.StatusPending.String():
			n.pending = c.N
		case stores.StatusFailed.String():
			n.failed = c.N
		case stores.StatusDiscarded.String():
			n.discarded = c.N
		case "quarantined":
			n.quarantined = c.N
		}
	}
	// After the counts: an order that is charged in between is not missed.
	err = d.db.QueryRowContext(ctx, `SELECT count(DISTINCT order_id) FROM charge`).Scan(&n.charged)
	return n, err
}

// rest waits until there is nothing left that the service would do by itself.
func (s *story) rest(ctx context.Context, service *running) error {
	return s.await(ctx, service, "every order is charged or failed", func(n standing) bool {
		return n.pending == 0 && n.charged+n.failed+n.discarded == len(s.shop.sent)
	})
}

// await waits for what happens in the service, and says how it gets on.
func (s *story) await(ctx context.Context, service *running, what string, reached func(standing) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var last standing
	said := time.Now()
	for {
		n, err := s.db.standing(ctx)
		if err == nil && reached(n) {
			fmt.Fprintln(s.messages, n)
			return nil
		}
		if err != nil && !errors.Is(err, stores.ErrUnavailable) {
			return err
		}
		if n != last && time.Since(said) > 200*time.Millisecond {
			said, last = time.Now(), n
			fmt.Fprintln(s.messages, n)
		}
		select {
		case <-ticker.C:
		case <-service.done:
			return errors.Join(errors.New("the service has ended"), service.err)
		case <-ctx.Done():
			service.seen.show(s.messages)
			return fmt.Errorf("waiting until %s, with %s: %w", what, n, ctx.Err())
		}
	}
}
