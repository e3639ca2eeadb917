// Command forwarder is Watermill's Forwarder beside watermill-sql, as bench compares it with
// the relay. It is a module of its own, so that nobody who uses millpond has what it needs.
//
// It writes messages into a table, says so, waits for a line, forwards them to a broker in
// memory and says in how many nanoseconds.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func main() {
	var (
		url     = flag.String("url", "", "the database")
		schema  = flag.String("schema", "default", "watermill-sql's `schema`: default or queue")
		n       = flag.Int("n", 1000, "how many messages")
		payload = flag.String("payload", "", "what each has")
	)
	flag.Parse()
	if err := run(context.Background(), *url, *schema, *payload, *n); err != nil {
		fmt.Fprintln(os.Stderr, "forwarder:", err)
		os.Exit(1)
	}
}

// schemas are watermill-sql's two for PostgreSQL, with their defaults.
func schemas(name string) (wmsql.SchemaAdapter, wmsql.OffsetsAdapter, error) {
	switch name {
	case "default":
		return wmsql.DefaultPostgreSQLSchema{}, wmsql.DefaultPostgreSQLOffsetsAdapter{}, nil
	case "queue":
		return wmsql.PostgreSQLQueueSchema{}, wmsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}, nil
	}
	return nil, nil, fmt.Errorf("-schema is %q: use default or queue", name)
}

func run(ctx context.Context, url, schemaName, payload string, n int) error {
	schema, offsets, err := schemas(schemaName)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	topic := "forwarder_" + strings.ReplaceAll(watermill.NewUUID(), "-", "")
	db := wmsql.BeginnerFromPgx(pool)
	if err := write(db, schema, topic, payload, n); err != nil {
		return fmt.Errorf("write messages: %w", err)
	}
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	subscriber, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	broker, err := memory.New(memory.Config{Capacity: 1 << 24})
	if err != nil {
		return err
	}
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	to := &counted{Publisher: publisher, want: int64(n), done: make(chan time.Time, 1)}
	f, err := forwarder.NewForwarder(subscriber, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- f.Run(ctx) }()
	select {
	case last := <-to.done:
		fmt.Println(last.Sub(start).Nanoseconds())
	case err := <-ended:
		return fmt.Errorf("the forwarder ended: %w", err)
	}
	return errors.Join(f.Close(), <-ended)
}

// write writes messages as a producer does, a hundred in each transaction.
func write(db wmsql.Beginner, schema wmsql.SchemaAdapter, topic, payload string, n int) error {
	const atOnce = 100
	into, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	publisher := forwarder.NewPublisher(into, forwarder.PublisherConfig{ForwarderTopic: topic})
	for n > 0 {
		var messages []*message.Message
		for range min(n, atOnce) {
			msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
			msg.Metadata = message.Metadata{"content_type": "application/json", "correlation_id": msg.UUID}
			messages = append(messages, msg)
		}
		if err := publisher.Publish("shipments", messages...); err != nil {
			return err
		}
		n -= len(messages)
	}
	return nil
}

// counted says when so many messages were taken.
type counted struct {
	message.Publisher

	want, got int64
	done      chan time.Time
}

func (c *counted) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err == nil && atomic.AddInt64(&c.got, int64(len(messages))) == c.want {
		c.done <- time.Now()
	}
	return err
}
