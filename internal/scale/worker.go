package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/pause"
)

const (
	workerVariable = "MILLPOND_SCALE_WORKER"
	inFlight       = 8 // of each process
	reportEvery    = 50 * time.Millisecond
)

// worker is what one process serves.
type worker struct {
	Kind   string        `json:"kind"`
	Broker string        `json:"broker"` // of Kafka
	Group  string        `json:"group"`
	Work   time.Duration `json:"work"`
	Shards []shard       `json:"shards"`
}

// shard is a topic with the database that has the effects of its keys.
type shard struct {
	Topic string `json:"topic"`
	Store string `json:"store"`
}

// asWorker reports whether this process was started as one.
func asWorker() (w worker, ok bool, err error) {
	text := os.Getenv(workerVariable)
	if text == "" {
		return w, false, nil
	}
	return w, true, json.Unmarshal([]byte(text), &w)
}

// run serves until ctx ends, and says again and again how many messages it has settled.
func (w worker) run(ctx context.Context, out io.Writer) (err error) {
	u := &url.URL{Scheme: "kafka", Host: w.Broker, RawQuery: url.Values{
		"in_flight_per_partition": {fmt.Sprint(inFlight)}, "session_timeout": {"3s"}, "rebalance_drain": {"2s"},
	}.Encode()}
	broker, err := kafka.Open(ctx, u)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	var settled atomic.Int64
	for i, s := range w.Shards {
		served, err := kinds[w.Kind].serve(ctx, s.Store, w.waiting)
		if err != nil {
			return err
		}
		defer served.close()
		subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: w.Group, InFlight: inFlight / len(w.Shards)})
		if err != nil {
			return err
		}
		h := router.AddConsumerHandler(fmt.Sprintf("effect-%d", i), s.Topic, subscriber, served.handler)
		h.AddMiddleware(counted(&settled))
		if served.inbox != nil {
			h.AddMiddleware(served.inbox)
		}
	}
	go func() {
		for pause.Sleep(ctx, reportEvery) {
			fmt.Fprintln(out, settled.Load())
		}
	}()
	err = router.Run(ctx)
	fmt.Fprintln(out, settled.Load())
	return err
}

// counted counts what is settled.
func counted(settled *atomic.Int64) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := next(msg)
			if err == nil {
				settled.Add(1)
			}
			return outputs, err
		}
	}
}

// waiting is what a handler does besides.
func (w worker) waiting(ctx context.Context) { pause.Sleep(ctx, w.Work) }

var quiet = slog.New(slog.DiscardHandler)
