package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	wakeOff = "others poll"
	wakeOn  = "others are woken"
)

const wakeInterval = 25 * time.Millisecond // of relays that are woken

// wakeRecipes are handlers with an output each, and a relay on connections of its own, as in
// another process.
func wakeRecipes(db *database) []recipe {
	with := func(wakes bool) func(context.Context, int) (*handling, error) {
		return func(ctx context.Context, workers int) (*handling, error) {
			store, err := db.store(ctx, workers+2)
			if err != nil {
				return nil, err
			}
			relaying, err := db.store(ctx, relayConnections)
			if err != nil {
				return nil, err
			}
			p, endBroker, err := toMemory(ctx)
			if err != nil {
				return nil, err
			}
			config := middleware.InboxConfig{Service: serviceName, Outputs: &middleware.Outputs{}}
			relays := outbox.Config{Publishers: map[string]message.Publisher{"": p}}
			if wakes {
				config.Outputs.Relay, relays.WakeInterval = outbox.NewWaker(store, outbox.WakerConfig{}), wakeInterval
			}
			relay, err := outbox.New(relaying, relays)
			if err != nil {
				return nil, err
			}
			var running background
			running.start(ctx, relay.Run)
			return behindInbox(store, config, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
				return errors.Join(write(ctx, tx, msg), say(msg))
			}), func() error { return errors.Join(running.end(), endBroker(), relaying.Close(), store.Close()) })
		}
	}
	return []recipe{
		{name: wakeOff, routed: true, open: with(false)},
		{name: wakeOn, against: wakeOff, routed: true, open: with(true)},
	}
}

// wakes measures what it costs handlers to wake relays in other processes.
func wakes(_ context.Context, s *site, _ options) (*group, error) {
	return &group{
		title: "PostgreSQL: relays in other processes, woken or not",
		about: "Handlers behind an inbox, each with a row and an output, and a relay on connections of its own, as in another process, which publishes to a " +
			"broker in memory. It polls every 250 ms, or the handlers' process wakes it by NOTIFY besides, at most every 25 ms.",
		workers: []int{goalWorkers}, recipes: wakeRecipes(s.used),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}, nil
}
