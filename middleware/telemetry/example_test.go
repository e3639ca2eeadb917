package telemetry_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A router with an inbox gets spans and metrics: a hook of the inbox, and around the
// publisher.
func ExampleNew() {
	spans := tracetest.NewInMemoryExporter() // in place of one to a collector
	providers := telemetry.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
		Propagator:     propagation.TraceContext{},
	}
	ctx, router, store, remove := exampleRouter()
	defer remove()
	subscriber, publisher := exampleBroker()

	t, err := telemetry.New(providers) // Config{}: OpenTelemetry's global ones
	check(err)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "shop",
		Hooks:   []middleware.Hook{t},
		Logger:  slog.New(telemetry.LogHandler(slog.NewTextHandler(os.Stderr, nil))), // with trace_id and span_id
	})
	check(err)
	publisher = t.Publisher(publisher)

	handled := make(chan struct{})
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("stock", "orders", subscriber, func(*message.Message) error {
		close(handled)
		return nil
	})
	go func() { _ = router.Run(ctx) }()
	<-router.Running()
	check(publisher.Publish("orders", message.NewMessage("1", nil)))
	<-handled
	check(router.Close())
	check(store.Close())
	check(t.Close())

	var names []string
	for _, span := range spans.GetSpans() {
		names = append(names, span.Name)
	}
	slices.Sort(names)
	fmt.Println(names)
	// Output: [claim commit process orders send orders]
}

func exampleRouter() (_ context.Context, _ *message.Router, _ *sqlite.Store, remove func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millpond-")
	check(err)
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	return ctx, router, store, func() { _ = os.RemoveAll(dir) }
}

func exampleBroker() (message.Subscriber, message.Publisher) {
	broker, err := memory.New(memory.Config{})
	check(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shop"})
	check(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	check(err)
	return subscriber, publisher
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
