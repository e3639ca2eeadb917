package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/stores"
)

// consumer is the handler's, as the inbox names it.
var consumer = stores.Consumer{Service: serviceName, Handler: handlerName}

// park records n messages as parked after a first failure. A retry worker is given
// them with their numbers from 0 on as UUIDs; their ids are as scattered as real ones.
func park(ctx context.Context, store stores.Store, n int, dueIn time.Duration) error {
	if err := store.Register(ctx, stores.Registration{Consumer: consumer, Topic: topicName}); err != nil {
		return err
	}
	const atOnce = 16
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			_, err := store.Record(ctx, failure(i, dueIn))
			return err
		})
	}
	return group.Wait()
}

func failure(i int, dueIn time.Duration) stores.Failure {
	const text = "payment gateway: 503 Service Unavailable"
	id := uuid.NewString()
	body := payload(id)
	return stores.Failure{
		Key:         stores.Key{Consumer: consumer, ID: []byte("u:" + id)},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, body),
		Status:      stores.StatusPending, Placement: stores.PlacementParked,
		Attempts: 1, DueIn: dueIn,
		Class: stores.ClassTransient, Error: text, Cause: stores.CauseOf(stores.ClassTransient, text),
		Topic: topicName,
		Content: &stores.Content{
			State: stores.ContentKept, UUID: strconv.Itoa(i), Payload: body,
			Metadata: map[string]string{"content_type": "application/json", "correlation_id": id},
		},
	}
}

// crowd fills a database with n messages that are parked for a day.
func (db *database) crowd(ctx context.Context, store stores.Store, n int) error {
	if err := park(ctx, store, 1, 24*time.Hour); err != nil {
		return err
	}
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	for _, statement := range []string{copyParked, "VACUUM ANALYZE millpond_inbox", "VACUUM ANALYZE millpond_failure"} {
		var args []any
		if statement == copyParked {
			args = append(args, n-1)
		}
		if _, err := pool.Exec(ctx, statement, args...); err != nil {
			return fmt.Errorf("fill the table of failures: %w", err)
		}
	}
	return nil
}

// copyParked makes more messages like the one that is there, due in the course of a day.
const copyParked = `WITH fresh AS MATERIALIZED (
	SELECT convert_to('u:' || gen_random_uuid(), 'UTF8') AS id, now() + interval '1 hour' + random() * interval '23 hours' AS due_at
	FROM generate_series(1, $1)
), born AS (
	INSERT INTO millpond_inbox (consumer, message_id, status, fingerprint)
	SELECT i.consumer, fresh.id, i.status, i.fingerprint FROM millpond_inbox i, fresh
)
INSERT INTO millpond_failure (consumer, status, placement, content, attempts, uncounted, due_at, message_id,
	class, cause, error, topic, coordinates, history, codec, uuid, metadata, payload)
SELECT f.consumer, f.status, f.placement, f.content, f.attempts, f.uncounted, fresh.due_at, fresh.id,
	f.class, f.cause, f.error, f.topic, f.coordinates, f.history, f.codec, f.uuid, f.metadata, f.payload
FROM millpond_failure f, fresh`

// tidy removes what a cell has left behind in a crowded database, as autovacuum and the
// purge would.
func (db *database) tidy(ctx context.Context) error {
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	for _, statement := range []string{"DELETE FROM millpond_inbox WHERE status = 2", "VACUUM millpond_inbox", "VACUUM millpond_failure"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("tidy up: %w", err)
		}
	}
	return nil
}

// nothingDue is an error if messages are due.
func nothingDue(ctx context.Context, store stores.Store) error {
	backlog, err := store.Backlog(ctx, 1)
	if err == nil && len(backlog) > 0 {
		err = errors.New("messages are still due at the end")
	}
	return err
}
