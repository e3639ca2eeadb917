package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes: what is offered to the inbox alone, and to batches.
const (
	inboxTwo        = "inbox, 2 a second"
	batchesTwo      = "batches, 2 a second"
	inboxTwenty     = "inbox, 20 a second"
	batchesTwenty   = "batches, 20 a second"
	inboxHundred    = "inbox, 100 a second"
	batchesHundred  = "batches, 100 a second"
	inboxOverload   = "inbox, 1.3 times what it carries"
	batchesOverload = "batches, the same load"
	queuedOverload  = "queued, batches, the same load"
)

const (
	manyInFlight       = 256 // deliveries
	offeredConnections = 16
	fewLonger          = 30  // cells than others, about 10 s
	manyLonger         = 100 // about 30 s
	overload           = 1.3
)

// offered is a recipe whose messages begin at a pace.
func offered(db *database, name string, pace int, batches bool) recipe {
	return recipe{name: name, pace: pace, open: onConnections(db, offeredConnections, poolWith(write, batches))}
}

// offeredFew measures what batches do to messages that come one by one.
func offeredFew(_ context.Context, s *site, _ options) (*group, error) {
	return &group{
		title: "PostgreSQL: few messages, with batches and without",
		about: fmt.Sprintf("Messages begin at a fixed pace, whatever the ones before take. %d may be in flight, on %d connections. "+
			"p50 and p99 are from when a message is due to its ack.", manyInFlight, offeredConnections),
		workers: []int{manyInFlight}, stayOpen: true, longer: fewLonger, least: 4,
		recipes: []recipe{
			offered(s.used, inboxTwo, 2, false), offered(s.used, batchesTwo, 2, true),
			offered(s.used, inboxTwenty, 20, false), offered(s.used, batchesTwenty, 20, true),
			offered(s.used, inboxHundred, 100, false), offered(s.used, batchesHundred, 100, true),
		},
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}, nil
}

// offeredMany measures a load that one transaction for each message does not carry.
func offeredMany(ctx context.Context, s *site, o options) (*group, error) {
	g := &group{
		title:   "PostgreSQL: more messages than one transaction each carries",
		workers: []int{manyInFlight}, stayOpen: true, longer: manyLonger,
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}
	closed := offered(s.used, inboxOverload, 0, false)
	alone := contender{recipe: &closed, workers: manyInFlight}
	const cell = 2 * time.Second
	if err := g.calibrate(ctx, &alone, cell); err != nil {
		return nil, err
	}
	pace := int(overload * float64(alone.count) / cell.Seconds())
	queued := recipe{name: queuedOverload, pace: pace, open: onConnections(s.used, offeredConnections, poolHandling(postgres.Queued(queue), true))}
	g.recipes = []recipe{offered(s.used, inboxOverload, pace, false), offered(s.used, batchesOverload, pace, true), queued}
	g.about = fmt.Sprintf("%d messages begin each second, %.1f times what the inbox alone carried with %d in flight on %d connections. "+
		"p50 and p99 are from when a message is due to its ack.", pace, overload, manyInFlight, offeredConnections)
	return g, nil
}
