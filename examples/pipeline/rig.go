package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// rig is the parent: customers, two brokers and three services.
type rig struct {
	options

	placing           []order
	shop              string // its URL
	orders, shipments *exchange
	stores            map[string]*sqlite.Store // to look at
	accepted          atomic.Int64
	kills             [3]atomic.Int64

	// Of each service, and by its fleet alone: how much it has written, and since when.
	written [3]int
	since   [3]time.Time
}

// supervise lets the customers place their orders, and checks what came of them.
func supervise(ctx context.Context, o options, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "pipeline-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.dir, o.run = dir, uuid.NewString()
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("nothing more within %s", o.timeout))
	defer cancel()
	r := &rig{options: o, placing: someOrders(o.seed, o.count), orders: newExchange(), shipments: newExchange()}
	if err := r.prepare(ctx); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer r.close()
	stop, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	err = errors.Join(initialize(ctx, r.brokers.orders, o.group("stock"), o.topics().orders),
		initialize(ctx, r.brokers.shipments, o.group("shipping"), o.topics().shipments))
	if err != nil {
		return err
	}
	var showing sync.WaitGroup
	ended := make(chan struct{})
	showing.Go(func() { r.show(progress, ended) })
	reports, err := r.run(ctx)
	close(ended)
	showing.Wait()
	if err != nil {
		return err
	}
	l, err := readLedger(ctx, r.stores)
	if err != nil {
		return err
	}
	result := compare(r.placing, l)
	result.withoutOutbox = o.withoutOutbox
	for i, report := range reports {
		result.kills[i] = report.Kills[fleet.SIGKILL]
	}
	if err := result.show(out); err != nil {
		return err
	}
	if !o.withoutOutbox && !result.right() {
		return errors.New("the ledger does not balance")
	}
	return nil
}

var articles = []string{"bench", "chair", "desk", "lamp"}

func someOrders(seed uint64, n int) []order {
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it must be replayable, not secret
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{Number: int64(i + 1), Article: articles[rng.IntN(len(articles))], Quantity: 1 + rng.Int64N(5)}
	}
	return orders
}

// services are the three, in the order in which an order passes them.
var services = [3]string{"shop", "stock", "shipping"}

// prepare makes the databases.
func (r *rig) prepare(ctx context.Context) error {
	r.stores = make(map[string]*sqlite.Store)
	for i, schema := range []string{shopSchema, stockSchema, shippingSchema} {
		store, err := database(ctx, r.dir, services[i])
		if err != nil {
			return err
		}
		r.stores[services[i]] = store
		if _, err := store.DB().ExecContext(ctx, schema); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) close() {
	for _, store := range r.stores {
		_ = store.Close()
	}
}

// listen plays the brokers that are not named, and finds a place for the shop.
func (r *rig) listen(ctx context.Context) (stop func(), err error) {
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.options.listen, r.shop = free.Addr().String(), "http://"+free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	if r.brokers.orders != "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", r.orders)
	mux.Handle("POST /shipments", r.shipments)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	at := "http://" + listener.Addr().String()
	r.brokers = endpoints{at + "/orders", at + "/shipments"}
	return func() { _ = server.Close() }, nil
}

// run runs the services. Each one ends when the one before has ended and all that it has said
// was received.
func (r *rig) run(ctx context.Context) (all [3]fleet.Report, err error) {
	open := newExchange() // the shop is told nothing by a broker
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var (
		wg    sync.WaitGroup
		feeds = [3]*exchange{open, r.orders, r.shipments}
	)
	for i, service := range services {
		wg.Go(func() {
			report, err := fleet.Run(ctx, r.config(i, service, feeds[i]))
			if all[i] = report; err != nil {
				fail(fmt.Errorf("%s: %w", service, err))
			}
			if i+1 < len(feeds) {
				close(feeds[i+1].ended)
			}
		})
	}
	if err := r.customers(ctx); err != nil {
		fail(err)
	}
	close(open.ended)
	wg.Wait()
	return all, context.Cause(ctx)
}

func (r *rig) config(i int, service string, feed *exchange) fleet.Config {
	args := []string{
		"--role", service, "--dir", r.dir, "--run", r.options.run, "--listen", r.options.listen,
		"--orders", r.brokers.orders, "--shipments", r.brokers.shipments, "--without-outbox=" + strconv.FormatBool(r.withoutOutbox),
	}
	c := fleet.Config{
		Source: feed.source, Command: fleet.Self(args...), Workers: 2, InFlight: inFlight, Seed: r.seed, Duplicates: 0.05,
		Kills:  r.killsOf(i),
		AtRest: func(ctx context.Context) bool { return r.atRest(ctx, i) },
		Observe: func(e fleet.Event) {
			if e.Kind == fleet.EventKilled {
				r.kills[i].Add(1)
			}
		},
	}
	if i == 0 {
		c.Workers = 1 // it has one place to listen at
	}
	return c
}

// points are where processes are killed: where most is half done.
var points = [3][]string{
	{"shop: committed", "shop: published"},
	{"stock: written", "stock: published"},
	{"shipping: written"},
}

// killsOf spreads a service's part of the kills over the orders.
func (r *rig) killsOf(service int) (kills []fleet.Kill) {
	rng := rand.New(rand.NewPCG(r.seed, uint64(service+1))) //nolint:gosec // it must be replayable, not secret
	n := (r.options.kills + service) / len(services)
	for i := range n {
		at := points[service][i%len(points[service])]
		kills = append(kills, fleet.Kill{Kind: fleet.SIGKILL, Point: at, Hit: 1 + r.count*i/n + rng.IntN(max(r.count/n, 1))})
	}
	return kills
}

// customers place the orders, eight at a time. Who gets no answer asks again.
func (r *rig) customers(ctx context.Context) error {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(r.placing) || ctx.Err() != nil {
					return
				}
				for r.place(ctx, r.placing[i]) != nil && ctx.Err() == nil {
					<-time.After(20 * time.Millisecond)
				}
				r.accepted.Add(1)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (r *rig) place(ctx context.Context, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return post(ctx, r.shop, body, http.StatusCreated)
}

// atRest reports whether a service has nothing to do any more. Of a real broker nobody knows
// whether it still has something.
func (r *rig) atRest(ctx context.Context, service int) bool {
	store := r.stores[services[service]]
	if service < 2 && count(ctx, store, "millpond_outbox") != 0 {
		return false
	}
	if service == 0 || isParent(r.brokers.orders) {
		return true
	}
	n := count(ctx, store, tables[service])
	if !r.withoutOutbox {
		return n >= r.count
	}
	const patience = 30 * time.Second // a broker may need ten to miss a process that was killed
	if n != r.written[service] || r.since[service].IsZero() {
		r.written[service], r.since[service] = n, time.Now()
	}
	return time.Since(r.since[service]) > patience
}

// show shows how it goes.
func (r *rig) show(out io.Writer, ended <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ctx := context.Background()
			fmt.Fprintf(out, "%d of %d orders accepted, %d reserved, %d shipped; %d kills\n", r.accepted.Load(), r.count,
				count(ctx, r.stores["stock"], tables[1]), count(ctx, r.stores["shipping"], tables[2]),
				r.kills[0].Load()+r.kills[1].Load()+r.kills[2].Load())
		case <-ended:
			return
		}
	}
}
