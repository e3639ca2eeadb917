package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// isParent reports whether a broker is the parent.
func isParent(url string) bool { return strings.HasPrefix(url, "http://") }

// database opens a service's own database.
func database(ctx context.Context, dir, service string) (*sqlite.Store, error) {
	store, err := sqlite.New(ctx, filepath.Join(dir, service+".db"), sqlite.Config{AutoMigrate: true, BusyTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	if err := store.Validate(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// work is a process of one of the services, until the parent needs it no more.
func work(ctx context.Context, o options) error {
	parent, err := fleet.ConnectStdio()
	if err != nil {
		return err
	}
	store, err := database(ctx, o.dir, o.role)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	needed, err := parent.Subscribe(ctx, "nothing")
	if err != nil {
		return err
	}
	go func() {
		for range needed { // it is closed with the parent's end
		}
		stop()
	}()
	switch o.role {
	case "shop":
		err = shopProcess(ctx, o, store, parent)
	case "stock":
		err = stockProcess(ctx, o, store, parent)
	case "shipping":
		err = shippingProcess(ctx, o, store, parent)
	default:
		err = fmt.Errorf("--role is %q", o.role)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was to leave before it had connected
	}
	return errors.Join(err, parent.Close(), store.Close())
}

// relaying runs a relay to a broker until stop is called. Without an outbox there is none, and
// the broker itself is returned.
func relaying(ctx context.Context, o options, store *sqlite.Store, name, url string, parent *fleet.Worker) (relay *outbox.Relay, direct message.Publisher, stop func() error, err error) {
	p, end, err := publisher(ctx, url)
	if err != nil {
		return nil, nil, nil, err
	}
	p = announcing{p, o.role + ": published", parent.Announce}
	if o.withoutOutbox {
		return nil, p, end, nil
	}
	relay, err = outbox.New(store, outbox.Config{
		Publishers: map[string]message.Publisher{name: p}, Logger: quiet,
		LeaseTTL: 2 * time.Second, PublishTimeout: time.Second, // short, for processes die all the time
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	return relay, nil, func() error {
		cancel()
		return errors.Join(<-ended, end())
	}, nil
}

func shopProcess(ctx context.Context, o options, store *sqlite.Store, parent *fleet.Worker) error {
	relay, direct, stop, err := relaying(ctx, o, store, toStock, o.brokers.orders, parent)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return errors.Join(err, stop())
	}
	server := &http.Server{
		Handler:           &shop{store: store, relay: relay, topics: o.topics(), reached: parent.Announce, direct: direct},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	err = server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, stop())
}

func stockProcess(ctx context.Context, o options, store *sqlite.Store, parent *fleet.Worker) error {
	relay, direct, stop, err := relaying(ctx, o, store, toShipping, o.brokers.shipments, parent)
	if err != nil {
		return err
	}
	orders, end, err := subscriber(ctx, o.brokers.orders, o.group("stock"), parent)
	if err != nil {
		return errors.Join(err, stop())
	}
	s := &stock{store: store, relay: relay, topics: o.topics(), reached: parent.Announce, direct: direct}
	return errors.Join(s.serve(ctx, orders), end(), stop())
}

func shippingProcess(ctx context.Context, o options, store *sqlite.Store, parent *fleet.Worker) error {
	shipments, end, err := subscriber(ctx, o.brokers.shipments, o.group("shipping"), parent)
	if err != nil {
		return err
	}
	s := &shipping{store: store, topics: o.topics(), reached: parent.Announce}
	return errors.Join(s.serve(ctx, shipments), end())
}
