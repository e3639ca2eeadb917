package main

import (
	"context"
	"errors"

	"github.com/millpond-go/millpond/internal/pgproxy"
)

// countTrips counts the round trips of each recipe on the wire, on one connection
// that has prepared its statements. Nothing is timed.
func countTrips(ctx context.Context, db *database, recipes func(*database) []recipe, deliveries func(*recipe, int) load) (map[string]float64, error) {
	proxy, err := pgproxy.Start(db.url)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	proxied := at(proxy.URL())
	defer proxied.close()
	trips := make(map[string]float64)
	for _, r := range recipes(proxied) {
		if trips[r.name], err = r.trips(ctx, proxy, deliveries); err != nil {
			return nil, err
		}
	}
	return trips, nil
}

// trips counts the round trips of a message.
func (r *recipe) trips(ctx context.Context, proxy *pgproxy.Proxy, deliveries func(*recipe, int) load) (float64, error) {
	const warmUp, counted = 30, 100
	h, err := r.open(ctx, 1)
	if err != nil {
		return 0, err
	}
	d, err := newDriver(ctx, h, r.routed, 1)
	if err != nil {
		return 0, errors.Join(err, h.end())
	}
	l := deliveries(r, warmUp+counted)
	_, _, err = d.run(l, warmUp)
	before := proxy.Stats().RoundTrips
	if err == nil {
		_, _, err = d.run(l.after(warmUp), counted)
	}
	trips := float64(proxy.Stats().RoundTrips-before) / counted
	return trips, errors.Join(err, d.close(), h.end())
}
