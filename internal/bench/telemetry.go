package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	withoutTelemetry = "millpond"
	unheardTelemetry = "telemetry, without an SDK"
	withTelemetry    = "telemetry, SDK and batch exporter"
)

func telemetryRecipes(db *database) []recipe {
	return []recipe{
		{name: withoutTelemetry, routed: true, open: millpond(db, 0)},
		{name: unheardTelemetry, against: withoutTelemetry, routed: true, open: traced(db, nil)},
		{name: withTelemetry, against: withoutTelemetry, routed: true, open: traced(db, new(counting))},
	}
}

// tracing measures what spans and metrics cost a first delivery.
func tracing(ctx context.Context, s *site, o options) (*group, error) {
	g := &group{
		title: "PostgreSQL: telemetry",
		about: "First deliveries, under a router. Without an SDK OpenTelemetry's own no-op providers are used. " +
			"With it each delivery has three spans, all of them sampled, which a batch processor hands to an exporter that counts them and sends nothing, " +
			"and all metrics are recorded.",
		workers: []int{goalWorkers}, recipes: telemetryRecipes(s.used),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}
	var err error
	g.trips, err = countTrips(ctx, s.direct, telemetryRecipes, newMessages)
	return g, err
}

// counting is an exporter that goes nowhere.
type counting struct{ spans atomic.Int64 }

func (c *counting) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.spans.Add(int64(len(spans)))
	return nil
}

func (c *counting) Shutdown(context.Context) error { return nil }

// traced is the inbox with telemetry, whose spans go to an exporter, if there is one.
func traced(db *database, exporter *counting) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, workers int) (*handling, error) {
		store, err := db.store(ctx, workers)
		if err != nil {
			return nil, err
		}
		c := telemetry.Config{Propagator: propagation.TraceContext{}, System: "bench", Store: store}
		end := func() error { return nil }
		if exporter != nil {
			tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
			c.TracerProvider, c.MeterProvider = tracers, meters
			end = func() error {
				err := errors.Join(tracers.Shutdown(context.Background()), meters.Shutdown(context.Background()))
				if err == nil && exporter.spans.Load() == 0 {
					err = errors.New("no span was exported")
				}
				return err
			}
		}
		t, err := telemetry.New(c)
		if err != nil {
			return nil, err
		}
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
			Service: serviceName, Handler: handlerName, Hooks: []middleware.Hook{t},
		})
		if err != nil {
			return nil, err
		}
		return &handling{
			handler:    postgres.Handler(write),
			middleware: []message.HandlerMiddleware{inbox.Middleware},
			close: func() error {
				if err := errors.Join(t.Close(), end()); err != nil {
					return fmt.Errorf("telemetry: %w", err)
				}
				return store.Close()
			},
		}, nil
	}
}
