package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// outbox writes messages for a destination, each with itself as its order key where there are some,
// and returns their numbers.
func (w *world) outbox(destination string, ids ...string) (numbers []int64) {
	w.t.Helper()
	c := stores.PublisherConfig{Destination: destination, OrderKey: func(o stores.Output) []byte { return []byte("key of " + o.ID) }}
	var messages []*message.Message
	for _, id := range ids {
		msg := message.NewMessage(id, []byte(`{"order":"`+id+`"}`))
		msg.Metadata.Set("type", "order")
		messages = append(messages, msg)
	}
	require.NoError(w.t, w.store.Validate(w.t.Context()))
	var err error
	switch s := w.store.(type) {
	case *sqlite.Store:
		tx, begun := s.DB().BeginTx(w.t.Context(), nil)
		require.NoError(w.t, begun)
		require.NoError(w.t, sqlite.NewPublisher(tx, s, c).Publish("orders", messages...))
		err = tx.Commit()
	case *postgres.Store:
		err = pgx.BeginFunc(w.t.Context(), s.Pool(), func(tx pgx.Tx) error {
			return postgres.NewPublisher(tx, s, c).Publish("orders", messages...)
		})
	case *dynamodb.Store:
		c.OrderKey = nil
		err = s.Transact(w.t.Context(), func(tx *dynamodb.Tx) error { return dynamodb.NewPublisher(tx, c).Publish("orders", messages...) })
	}
	require.NoError(w.t, err)
	all, err := w.store.(stores.OutboxInspector).Outputs(w.t.Context(), stores.OutputQuery{OutputFilter: stores.OutputFilter{State: stores.OutputPending}, Limit: len(ids)})
	require.NoError(w.t, err)
	for _, o := range all {
		numbers = append([]int64{o.Number}, numbers...)
	}
	return numbers
}

func (w *world) settle(s stores.Settlement) {
	w.t.Helper()
	require.NoError(w.t, w.store.(stores.Outbox).Settle(w.t.Context(), s))
}

// From the dead letters of a relay to what is published after all.
func TestOutboxFromListToReplayed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		require.Empty(t, w.ok("outbox", "ls"))
		require.Equal(t, "no such messages in the outbox\n", w.errB.String())
		w.ok("outbox", "stats")
		require.Equal(t, "the outbox is empty\n", w.errB.String())

		eu, unnamed := w.outbox("kafka-eu", "a", "b", "c", "d"), w.outbox("", "e")
		w.settle(stores.Settlement{
			Published: []int64{eu[2], eu[3]}, Keep: true,
			Refused: []stores.RefusedOutput{{Number: eu[0], Attempts: 20, Error: "unknown topic", Failed: true, Blocks: true}, {Number: eu[1], Attempts: 1, Error: "too large", Failed: true}},
		})
		require.Contains(t, w.ok("outbox", "ls", "--no-destination"), "e")
		require.Empty(t, w.objects("outbox", "ls", "--destination", "kafka-eu"))
		failed := w.objects("outbox", "ls", "--state", "failed")
		require.Len(t, failed, 2)
		require.Equal(t, "kafka-eu", failed[1]["destination"])
		if !w.store.Capabilities().OutputsUnordered {
			require.Equal(t, "key of a", failed[1]["order_key"])
			require.Equal(t, true, failed[1]["blocks"])
			require.Contains(t, w.ok("outbox", "ls", "--state", "failed"), "key of a !")
		}
		require.Len(t, w.objects("outbox", "ls", "--state", "published", "--since", "1h"), 2)
		require.Len(t, w.objects("outbox", "stats"), 3)

		shown := w.object(exitOK, "outbox", "show", itoa(failed[1]["number"]))
		require.Equal(t, "unknown topic", shown["error"])
		require.Equal(t, map[string]any{"type": "order"}, shown["metadata"])
		require.Contains(t, w.ok("outbox", "show", itoa(failed[1]["number"])), `"order": "a"`)
		w.run(exitNothing, "outbox", "show", "123456")

		w.run(exitUsage, "outbox", "retry")
		w.run(exitUsage, "outbox", "retry", "--all")
		w.run(exitUsage, "outbox", "retry", "--all", "--topic", "orders", "--yes")
		w.run(exitUsage, "outbox", "discard", "--state", "published", "--all", "--yes")
		w.run(exitUsage, "outbox", "replay", "--topic", "orders", "--yes")
		w.run(exitNothing, "outbox", "retry", "--error-contains", "%", "--yes")
		preview := w.object(exitOK, "outbox", "retry", "--error-contains", "unknown", "--dry-run")
		require.EqualValues(t, 1, preview["matching"])
		require.Len(t, preview["messages"], 1)
		require.Contains(t, w.ok("outbox", "retry", "--all", "--dry-run"), "would retry 2 messages")
		require.Empty(t, w.objects("audit", "ls"), "a dry run changes nothing")

		w.terminal("y\n")
		require.Equal(t, "1 message to be published again\n", w.ok("outbox", "retry", "--error-contains", "unknown", "--reason", "created it"))
		require.Contains(t, w.errB.String(), "Retry 1 message? [y/N]")
		w.run(exitPartly, "outbox", "discard", itoa(float64(eu[1])), "123456")
		require.Empty(t, w.objects("outbox", "ls", "--state", "failed"))
		require.Equal(t, "1 message discarded\n", w.ok("outbox", "discard", "--state", "pending", "--id", "e"))
		w.batch = 1
		require.Equal(t, "2 messages to be published again\n", w.ok("outbox", "replay", "--since", "1h", "--yes"))
		var waiting []string
		for _, o := range w.objects("outbox", "ls") {
			waiting = append(waiting, o["message_id"].(string))
		}
		require.Equal(t, []string{"d", "c", "a"}, waiting)

		audit := w.objects("audit", "ls")
		require.Len(t, audit, 5)
		require.Equal(t, "outbox replay", audit[0]["verb"])
		require.Empty(t, audit[0]["consumer"])
		require.Equal(t, "created it", audit[4]["reason"])
		require.True(t, strings.HasPrefix(audit[4]["actor"].(string), "ada@"))
		require.EqualValues(t, unnamed[0], audit[2]["number"])
		t.Log(w.ok("audit", "ls"))

		var copies []int64
		for _, o := range w.objects("outbox", "ls", "--state", "pending", "--destination", "kafka-eu") {
			if id := o["message_id"]; id == "c" || id == "d" {
				copies = append(copies, int64(o["number"].(float64)))
			}
		}
		w.settle(stores.Settlement{Published: copies, Keep: true})
		require.Len(t, w.objects("outbox", "ls", "--state", "published"), 4)
		require.Contains(t, w.ok("outbox", "show", itoa(float64(copies[0]))), "copy of")
		require.Contains(t, w.ok("outbox", "replay", "--since", "1h", "--dry-run"), "would replay 2 messages")
		require.Equal(t, "2 messages to be published again\n", w.ok("outbox", "replay", "--since", "1h", "--yes"), "the copies are left out")
		require.Equal(t, "1 message to be published again\n", w.ok("outbox", "replay", itoa(float64(copies[0])), "--yes"))
	})
}

// The relay alone takes a service's configuration, and ends in order.
func TestRelayPublishesUntilItIsStopped(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.outbox("", "a", "b")
		path := filepath.Join(t.TempDir(), "service.yaml")
		require.NoError(t, os.WriteFile(path, []byte("service: shop\nbroker: {url: \"memory://\"}\nlog: {level: error}\nhandlers: {stock: {in_flight: 3}}\n"), 0o600))
		t.Setenv("MILLPOND_STORE_URL", w.vars[storeVariable])
		t.Setenv("MILLPOND_RELAY_KEEP", "true")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		relay := newSession(t)
		relay.ctx = ctx
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			relay.run(exitOK, "relay", path)
		}()
		testenv.Eventually(t, "what waits is published", func() bool {
			return strings.Count(w.ok("outbox", "ls", "--state", "published", "-o", "jsonl"), "\n") == 2
		})
		cancel()
		<-ended
		relay.ctx = t.Context()
		relay.run(exitError, "relay", path+"x")
	})
}
