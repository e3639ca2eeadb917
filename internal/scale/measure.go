package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/testenv/kafka"
)

// partitions of each topic: no more processes have work.
const partitions = 8

// measure runs all cells.
func measure(ctx context.Context, o options) (r *report, err error) {
	broker, err := kafka.Start(ctx, kafka.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r = &report{options: o}
	for _, name := range o.on {
		b := &bench{options: o, name: name, kind: kinds[name], broker: broker.Address(), client: client}
		if err := b.measure(ctx, r); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// bench measures one kind.
type bench struct {
	options
	kind

	name    string
	broker  string
	client  *kgo.Client
	servers []*server
}

func (b *bench) measure(ctx context.Context, r *report) (err error) {
	defer func() {
		for _, s := range b.servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for range b.kind.servers {
		s, err := startServer(ctx, b.name)
		if err != nil {
			return err
		}
		b.servers = append(b.servers, s)
	}
	for _, n := range b.options.processes {
		c, err := b.cell(ctx, n, 0)
		if err != nil {
			return fmt.Errorf("%d processes: %w", n, err)
		}
		fmt.Fprintf(b.progress, "%s, %d processes: %.0f/s\n", b.name, n, c.rate)
		r.cells = append(r.cells, c)
	}
	if !b.inbox || b.kills == 0 {
		return nil
	}
	c, err := b.cell(ctx, 4, b.kills)
	if err != nil {
		return fmt.Errorf("with kills: %w", err)
	}
	fmt.Fprintf(b.progress, "%s, 4 processes, %d killed and %d asked to leave: %d of %d, %d doubled\n", b.name, b.kills, c.left, c.distinct, c.messages, c.doubled())
	r.killed = append(r.killed, c)
	return nil
}

// cell is what one run has shown.
type cell struct {
	on                  string
	processes, messages int
	rate                float64       // messages a second
	client, server      time.Duration // processor time of a message
	kills, left         int
	distinct, all       int // effects
}

func (c cell) doubled() int { return c.all - c.distinct }
func (c cell) lost() int    { return c.messages - c.distinct }

// cell runs n processes on new databases until all messages have had their effect.
func (b *bench) cell(ctx context.Context, n, kills int) (c cell, err error) {
	c = cell{on: b.name, processes: n, messages: b.messages / b.less, kills: kills}
	shards, err := b.shards(ctx)
	if err != nil {
		return c, err
	}
	before := b.cpu()
	group := uuid.NewString()
	ps, err := startAll(n, func(i int) worker {
		mine := shards
		if n >= len(shards) { // a process serves one database, if there are enough of them
			mine = shards[i%len(shards) : i%len(shards)+1]
		}
		return worker{Kind: b.name, Broker: b.broker, Group: group, Work: b.work, Shards: mine}
	})
	if err != nil {
		return c, err
	}
	if err = b.publish(ctx, ps, group, shards, c.messages); err == nil && kills == 0 {
		c.rate, err = watch(ctx, ps, c.messages)
	} else if err == nil {
		c.left, err = b.disturb(ctx, ps, kills, shards, c.messages)
	}
	c.client = ps.stop() / time.Duration(c.messages)
	c.server = (b.cpu() - before) / time.Duration(c.messages)
	if err != nil {
		return c, err
	}
	c.distinct, c.all, err = b.effects(ctx, shards)
	if err == nil && (c.lost() != 0 || b.inbox && c.doubled() != 0) {
		err = fmt.Errorf("%d messages are lost and %d doubled", c.lost(), c.doubled())
	}
	return c, err
}

// watch returns the rate of the middle messages.
func watch(ctx context.Context, ps *processes, messages int) (rate float64, err error) {
	var begun, ended time.Time
	var from, to int64
	err = waitUntil(ctx, reportEvery/5, 10*time.Minute, func() (bool, error) {
		n, now := ps.settled(), time.Now()
		if begun.IsZero() && n >= int64(messages/10) {
			begun, from = now, n
		}
		if ended.IsZero() && n >= int64(messages*9/10) {
			ended, to = now, n
		}
		return n >= int64(messages), ps.died()
	})
	if err != nil {
		return 0, err
	}
	return float64(to-from) / ended.Sub(begun).Seconds(), nil
}

// disturb kills processes and asks others to leave, until all messages have had their effect.
func (b *bench) disturb(ctx context.Context, ps *processes, kills int, shards []shard, messages int) (left int, err error) {
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // it only has to be the same each time
	for killed := range kills {
		pause.Sleep(ctx, time.Second+time.Duration(random.IntN(1000))*time.Millisecond)
		if err := ps.end(random.IntN(len(ps.live)), syscall.SIGKILL); err != nil {
			return left, err
		}
		if killed%2 == 1 {
			left++
			if err := ps.end(random.IntN(len(ps.live)), syscall.SIGTERM); err != nil {
				return left, err
			}
		}
	}
	return left, waitUntil(ctx, time.Second, 10*time.Minute, func() (bool, error) {
		distinct, _, err := b.effects(ctx, shards)
		return distinct == messages, errors.Join(err, ps.died())
	})
}

// effects counts those of all shards.
func (b *bench) effects(ctx context.Context, shards []shard) (distinct, all int, err error) {
	for _, s := range shards {
		d, a, err := b.count(ctx, s.Store)
		if err != nil {
			return 0, 0, err
		}
		distinct, all = distinct+d, all+a
	}
	return distinct, all, nil
}

// server is one that has databases.
type server struct {
	Close       func() error
	PIDs        func() ([]int, error)
	newDatabase func(context.Context) (address string, err error)
}

// withPrefix is the address of tables on DynamoDB.
func withPrefix(endpoint, prefix string) string {
	return endpoint + "?" + url.Values{"prefix": {prefix}}.Encode()
}
