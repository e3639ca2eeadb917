package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// networkTime is what is added to each round trip in the groups that are far.
const networkTime = 500 * time.Microsecond

// measureAll measures group after group: what is compared stands in one.
func measureAll(ctx context.Context, o options) (_ *report, err error) {
	began := time.Now()
	dir, err := host.NewDir(ctx, "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	o.dir = dir.Path
	r := &report{Began: began, Repeats: o.repeats, Turns: o.turns, Cell: o.cell}
	if r.Machine, err = describeMachine(dir.Path); err != nil {
		return nil, err
	}
	if err := r.measureServer(ctx, o); err != nil {
		return nil, err
	}
	if slices.Contains(o.groups, "sqlite") {
		if err := r.add(ctx, o, onSQLite(dir.Path, o.workers)); err != nil {
			return nil, err
		}
	}
	if slices.Contains(o.groups, "batches-sqlite") {
		if err := r.add(ctx, o, batchesOnSQLite(dir.Path, o)); err != nil {
			return nil, err
		}
	}
	if slices.Contains(o.groups, "purge-sqlite") {
		if err := r.add(ctx, o, purgesSQLite(dir.Path)); err != nil {
			return nil, err
		}
	}
	for _, entry := range []struct {
		name    string
		measure func(context.Context, options) error
	}{
		{"mysql", r.measureMySQL}, {"purge-mysql", r.measurePurgeMySQL}, {"outputs-mysql", r.measureOutputsMySQL}, {"batches-mysql", r.measureBatchesMySQL}, {"kafka", r.measureKafka}, {"rabbitmq", r.measureRabbitMQ}, {"sqs", r.measureSQS}, {"nats", r.measureNATS},
	} {
		if !slices.Contains(o.groups, entry.name) {
			continue
		}
		if err := entry.measure(ctx, o); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.name, err)
		}
	}
	if slices.Contains(o.groups, "middleware") {
		o.progress.Print(middlewareTitle)
		if r.Middleware, err = measureInbox(ctx, o); err != nil {
			return nil, err
		}
	}
	r.Machine.LoadEnd = loadAverage()
	r.Goals = judge(r)
	r.Took = time.Since(began)
	o.progress.Printf("done in %v", r.Took.Round(time.Second))
	return r, nil
}

// measureServer measures everything on PostgreSQL.
func (r *report) measureServer(ctx context.Context, o options) (err error) {
	var s *server
	for _, entry := range onServer {
		if !slices.Contains(o.groups, entry.name) {
			continue
		}
		if s == nil {
			o.progress.Print("Starting a PostgreSQL server")
			if s, err = startServer(ctx); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			r.Machine.Postgres = s.version
		}
		if err := r.measureSite(ctx, o, s, entry); err != nil {
			return fmt.Errorf("%s: %w", entry.name, err)
		}
	}
	return nil
}

// siteGroup is a group on PostgreSQL.
type siteGroup struct {
	name    string
	open    func(context.Context, *site, options) (*group, error)
	latency time.Duration
}

var onServer = []siteGroup{
	{"first", firstSight, 0},
	{"duplicates", duplicates, 0},
	{"far-first", firstSight, networkTime},
	{"far-duplicates", duplicates, networkTime},
	{"failures", failures, 0},
	{"leases", leases, 0},
	{"batches", batches, 0},
	{"offered-few", offeredFew, 0},
	{"offered-many", offeredMany, 0},
	{"telemetry", tracing, 0},
	{"database-sql", databaseSQL, 0},
	{"outputs", outputs, 0},
	{"relay", relays, 0},
	{"relay-history", histories, 0},
	{"relay-snapshot", snapshots, 0},
	{"relay-prompt", promptness, 0},
	{"relay-wake", wakes, 0},
	{"forwarder", forwarders, 0},
	{"relay-kafka", relaysToKafka, 0},
	{"purge", purges, 0},
	{"completed", manyCompleted, 0},
}

func (r *report) measureSite(ctx context.Context, o options, s *server, entry siteGroup) error {
	site, err := newSite(ctx, s, entry.latency)
	if err != nil {
		return err
	}
	g, err := entry.open(ctx, site, o)
	if err != nil {
		site.close()
		return err
	}
	g.name = entry.name
	if entry.latency > 0 {
		g.far(entry.latency)
	}
	return r.add(ctx, o, g)
}

// add measures a group and closes it.
func (r *report) add(ctx context.Context, o options, g *group) error {
	defer g.close()
	contenders, err := g.measure(ctx, o)
	if err == nil && len(contenders) > 0 {
		r.Groups = append(r.Groups, g.result(contenders))
	}
	return err
}
