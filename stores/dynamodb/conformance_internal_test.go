package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/storetest"
)

func TestConformance(t *testing.T) {
	server := testenv.DynamoDB(t)
	const no = "a transaction is built by the handler, and nothing is sent before it has returned"
	lacks := make(map[storetest.Act]string)
	for _, act := range storetest.AllActs() {
		lacks[act] = no
	}
	storetest.Run(t, storetest.Harness{
		NewDatabase: func(tb testing.TB) *storetest.Database { return newConformanceDatabase(tb, server) },
		Write:       writeEffect,
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return Handler(func(ctx context.Context, _ *Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Ways:  []storetest.Way{{Name: "the suite's SQL as operations", Exec: operate, NotSQL: true}},
		Lacks: lacks,
		Transact: func(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
			return store.(*Store).Transact(ctx, func(tx *Tx) error {
				return f(func(c stores.PublisherConfig) message.Publisher { return NewPublisher(tx, c) })
			})
		},
		MaxOutputs: MaxOperations, MaxOutputBytes: maxPart,
		// A table takes its time to be made, and to be read as a whole.
		Groups: rotation.Turn(t, 2,
			"claim", "due", "quarantine", "outage", "erase", "record", "leased", "schema", "ids", "resolve", "change", "handler", "look",
			"take", "decide", "inbox", "race", "inspect", "parked", "registry", "router", "outbox", "outputs", "lease"),
	})
}

func newConformanceDatabase(tb testing.TB, server *testenv.DynamoDBServer) *storetest.Database {
	tb.Helper()
	m := newMirror(tb, server)
	return &storetest.Database{
		Admin: m.admin(),
		Open: func(tb testing.TB) stores.Store {
			tb.Helper()
			return openStore(tb, server, strings.TrimSuffix(m.store.table, "inbox"), clockOf(tb, m.store))
		},
	}
}

// openStore opens a store with a clock that others have, too: dates have whole seconds, so that
// stores which were opened just now are not agreed on the time.
func openStore(tb testing.TB, server *testenv.DynamoDBServer, prefix string, c *clock) *Store {
	tb.Helper()
	config := server.Config(tb)
	store, err := New(tb.Context(), Config{AWS: &config, TablePrefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	store.clock = c
	store.client = dynamodb.NewFromConfig(config, func(o *dynamodb.Options) { o.HTTPClient = dated{config.HTTPClient, c, answerWithin} })
	return store
}

// writeEffect puts an item of its own for each effect.
func writeEffect(ctx context.Context, e storetest.Effect) error {
	tx, ok := TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	table := strings.TrimSuffix(tx.store.table, "inbox") + "effect"
	return tx.Put(ctx, types.Put{TableName: &table, Item: item{
		"id": str(uuid.NewString()), "key": str(e.Key), "label": str(e.Label), "run": num(int64(e.Run)),
	}})
}

// operate does what the suite's statements do, as far as a builder can.
func operate(ctx context.Context, text string) error {
	tx, ok := TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	switch {
	case strings.HasPrefix(text, "INSERT INTO "+storetest.EffectTable):
		return writeEffect(ctx, storetest.Effect{Key: "late", Label: "by SQL", Run: 1})
	case strings.HasPrefix(text, "INSERT INTO "+storetest.TakenTable): // what is refused at once
		return tx.Put(ctx, types.Put{TableName: &tx.store.table, Item: item{}})
	case text == "COMMIT", text == "ROLLBACK":
		return errors.ErrUnsupported
	}
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, text)
}

var (
	exactly sync.Mutex
	exact   *clock
)

// clockOf returns a clock whose bounds have come close.
func clockOf(tb testing.TB, s *Store) *clock {
	tb.Helper()
	exactly.Lock()
	defer exactly.Unlock()
	if exact != nil {
		return exact
	}
	for {
		_, _ = s.client.ListTables(tb.Context(), &dynamodb.ListTablesInput{})
		low, high := s.clock.bounds()
		if high-low < 30_000 {
			exact = s.clock
			return exact
		}
	}
}
