package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
)

// The program of the tutorial, with its file: an order that is sent twice is deducted once.
func TestOrderThatIsSentTwiceIsDeductedOnce(t *testing.T) {
	brokerURL := "kafka://" + testenv.PrivateKafka(t).Address() + "?create_topics=true&partitions=1"
	storeURL := testenv.Postgres(t).NewDatabase(t)
	t.Setenv("MILLPOND_BROKER_URL", brokerURL)
	t.Setenv("MILLPOND_STORE_URL", storeURL)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()

	publish(t, brokerURL, `{"id": "order-1", "item": "cup"}`, `{"id": "order-1", "item": "cup"}`, `{"id": "order-2", "item": "cup"}`)
	db, err := pgx.Connect(ctx, storeURL)
	if err != nil {
		t.Fatal(err)
	}
	pieces := 10
	testenv.Eventually(t, "order-2, which comes after both of order-1, is deducted", func() bool {
		return db.QueryRow(ctx, "SELECT pieces FROM stock WHERE item = 'cup'").Scan(&pieces) == nil && pieces <= 8
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := db.QueryRow(t.Context(), "SELECT pieces FROM stock WHERE item = 'cup'").Scan(&pieces); err != nil || pieces != 8 {
		t.Errorf("%d pieces, %v; want 8", pieces, err)
	}
}

func publish(t *testing.T, brokerURL string, orders ...string) {
	t.Helper()
	broker, err := brokers.Open(t.Context(), brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range orders {
		if err := publisher.Publish("orders", message.NewMessage("", []byte(order))); err != nil {
			t.Fatal(err)
		}
	}
	if err := broker.Close(); err != nil {
		t.Error(err)
	}
}

// The tutorial has the file as it is here.
func TestTutorialHasTheFile(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorials/postgres-kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("millpond.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if shown == nil || strings.TrimSpace(string(shown[1])) != strings.TrimSpace(string(file)) {
		t.Error("the tutorial's file is not examples/service/millpond.yaml")
	}
}
