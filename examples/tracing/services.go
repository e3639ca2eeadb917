package main

// The two services. This file is what you would write.

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/amqp" // the brokers that MILLPOND_BROKER_URL may name
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/router"
	service "github.com/millpond-go/millpond/router/telemetry"
	_ "github.com/millpond-go/millpond/stores/postgres" // the stores that MILLPOND_STORE_URL may name
	_ "github.com/millpond-go/millpond/stores/sqlite"
)

// order is what a client posts, and what the shop publishes.
type order struct {
	ID       string `json:"id"`
	Article  string `json:"article"`
	Quantity int    `json:"quantity"`
}

// w3c carries trace context and baggage, in headers of requests and metadata of messages.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// kindOfTopic names spans: every run has a topic of its own, and all of them are one kind.
func kindOfTopic(string) string { return "orders" }

// newShop is the first service: POST /orders publishes what it gets. It has a publisher and
// no inbox, so telemetry decorates the publisher, and that is all.
func newShop(broker brokers.Broker, topic string, tracers trace.TracerProvider) (http.Handler, error) {
	t, err := telemetry.New(telemetry.Config{
		TracerProvider: tracers, Propagator: w3c, System: broker.Capabilities().System, DestinationTemplate: kindOfTopic,
	})
	if err != nil {
		return nil, err
	}
	plain, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	publisher := t.Publisher(plain)

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil || o.ID == "" {
			http.Error(w, "this is no order", http.StatusBadRequest)
			return
		}
		payload, err := json.Marshal(o)
		if err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		msg := message.NewMessage(o.ID, payload)
		msg.SetContext(r.Context()) // which has the request's span
		if err := publisher.Publish(topic, msg); err != nil {
			http.Error(w, "the order was not taken: try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	return otelhttp.NewHandler(mux, "", otelhttp.WithTracerProvider(tracers), otelhttp.WithPropagators(w3c),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return r.Method + " " + r.URL.Path })), nil
}

//go:embed warehouse.yaml
var files embed.FS

// newWarehouse is the second service: it reserves what was ordered. Its configuration asks
// for telemetry; only the providers are the program's.
func newWarehouse(ctx context.Context, environ []string, topic string, tracers trace.TracerProvider) (*router.Service, error) {
	config, err := router.ReadConfig(files, "warehouse.yaml", environ)
	if err != nil {
		return nil, err
	}
	config.Broker.Group = topic     // nobody else reads it
	config.Program.NoSignals = true // the program sees to them
	config.Program.Telemetry = func(o router.TelemetryOptions) (router.Telemetry, error) {
		return service.New(o, telemetry.Config{TracerProvider: tracers, Propagator: w3c, DestinationTemplate: kindOfTopic})
	}
	svc, err := router.New(ctx, config)
	if err != nil {
		return nil, err
	}
	w := &warehouse{tracer: tracers.Tracer("warehouse")}
	svc.Handle("reserve", topic, w.reserve)
	return svc, nil
}

// warehouse reserves what is ordered.
type warehouse struct {
	tracer trace.Tracer

	mu     sync.Mutex
	looked map[string]bool // orders whose shelf was looked for
}

var errLocked = errors.New("the shelf is locked")

// reserve is the handler. The context of the message carries the span of the delivery, so
// that the spans of its statements stand beneath.
func (w *warehouse) reserve(msg *message.Message) error {
	ctx := msg.Context()
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return middleware.Permanent(err)
	}
	if err := w.exec(ctx, "UPDATE", "stock", `UPDATE stock SET quantity = quantity - $1 WHERE article = $2`, o.Quantity, o.Article); err != nil {
		return err
	}
	if o.Article == "lamp" && w.locked(o.ID) {
		return errLocked // rolled back, and tried again
	}
	return w.exec(ctx, "INSERT", "reservation", `INSERT INTO reservation (order_id, article, quantity) VALUES ($1, $2, $3)`, o.ID, o.Article, o.Quantity)
}

// locked finds the shelf locked when it is looked for first.
func (w *warehouse) locked(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looked == nil {
		w.looked = make(map[string]bool)
	}
	before := w.looked[id]
	w.looked[id] = true
	return !before
}
