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
	if r.job != nil {
		return r.jobTrips(ctx, proxy)
	}
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

// jobTrips counts the round trips of a job for each of its messages. What it does once
// is in it.
func (r *recipe) jobTrips(ctx context.Context, proxy *pgproxy.Proxy) (float64, error) {
	const counted = 1000
	var trips float64
	for range 2 { // the first time prepares the statements
		j, err := r.job(ctx, goalWorkers, counted)
		if err != nil {
			return 0, err
		}
		before := proxy.Stats().RoundTrips
		_, _, err = j.run()
		trips = float64(proxy.Stats().RoundTrips-before) / counted
		if err := errors.Join(err, j.close()); err != nil {
			return 0, err
		}
	}
	return trips, nil
}
