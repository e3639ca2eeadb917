package telemetry_test

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores/postgres"
)

const (
	topic   = "orders"
	handler = "stock"
	service = "shop"
)

// opener opens a broker of a test's own, or a topic of it.
type opener func(t *testing.T) brokers.Broker

var both = map[string]opener{
	"memory": func(t *testing.T) brokers.Broker {
		b, err := memory.New(memory.Config{})
		require.NoError(t, err)
		return b
	},
	"kafka": func(t *testing.T) brokers.Broker {
		b, err := kafka.New(t.Context(), kafka.Config{
			Brokers: testenv.Kafka(t),
			Consume: kafka.Consume{InFlightPerPartition: 8},
			Publish: kafka.Publish{CreateTopics: true, Partitions: 1, Replication: 1},
		})
		require.NoError(t, err)
		return b
	},
}

// byTurns runs a test on the broker whose turn it is.
func byTurns(t *testing.T, test func(t *testing.T, open opener)) {
	for name, open := range rotation.Some(t, 1, both) {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

// rig is a service on a broker and PostgreSQL, behind a proxy, whose spans and metrics
// stay in memory.
type rig struct {
	t         *testing.T
	broker    brokers.Broker
	proxy     *pgproxy.Proxy
	telemetry *telemetry.Telemetry
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	reader    *sdkmetric.ManualReader
	topic     string
	publisher message.Publisher // decorated
	log       *logged

	inbox  middleware.InboxConfig
	config telemetry.Config
	poll   time.Duration // of the retry worker

	queries pgx.QueryTracer // of the store's connections, if not nil
}

func newRig(t *testing.T, open opener) *rig {
	t.Helper()
	r := &rig{
		t: t, broker: open(t), spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader(),
		topic: topic + "-" + watermill.NewShortUUID(), log: &logged{}, poll: 20 * time.Millisecond,
	}
	t.Cleanup(func() { _ = r.broker.Close() })
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.config = telemetry.Config{
		TracerProvider: r.tracers,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)),
		Propagator:     propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
		System:         r.broker.Capabilities().System,
	}
	r.inbox = middleware.InboxConfig{
		Service: service,
		Hold:    middleware.HoldConfig{MinPause: 5 * time.Millisecond, MaxPause: 20 * time.Millisecond},
		Retry:   middleware.RetryPolicy{MaxAttempts: 2, Backoff: middleware.BackoffConfig{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}},
		Logger:  slog.New(telemetry.LogHandler(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}
	return r
}

// running is a rig whose service runs.
type running struct {
	*rig

	stop func()
}

// run runs the handler, with a retry worker, until the test ends or stop is called.
func (r *rig) run(handle func(ctx context.Context, msg *message.Message) error) *running {
	t := r.t
	t.Helper()
	databaseURL := testenv.Postgres(t).NewDatabase(t)
	proxy, err := pgproxy.Start(databaseURL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	r.proxy = proxy
	u, err := url.Parse(proxy.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), canary) // which the server does not ask for
	query := u.Query()
	query.Set("pool_max_conns", "12")
	u.RawQuery = query.Encode()
	poolConfig, err := pgxpool.ParseConfig(u.String())
	require.NoError(t, err)
	poolConfig.ConnConfig.Tracer = r.queries
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.New(pool, postgres.Config{})
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)

	t.Cleanup(func() { r.keepsSecrets() })
	r.telemetry, err = telemetry.New(r.config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.telemetry.Close()) })
	r.inbox.Hooks = append(r.inbox.Hooks, r.telemetry)
	inbox, err := middleware.NewInbox(store, r.inbox)
	require.NoError(t, err)
	logger := watermill.NewSlogLogger(r.inbox.Logger)
	subscriber, err := r.broker.Subscriber(brokers.SubscriberConfig{Group: service + "-" + r.topic, InFlight: 4, DrainTimeout: 10 * time.Second, Logger: logger})
	require.NoError(t, err)
	plain, err := r.broker.Publisher(brokers.PublisherConfig{Logger: logger})
	require.NoError(t, err)
	r.publisher = r.telemetry.Publisher(plain)
	if r.config.System == "kafka" { // which subscribes to topics that exist
		require.NoError(t, plain.Publish(r.topic, message.NewMessage("warm-up", nil)))
	}

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, logger)
	require.NoError(t, err)
	router.AddMiddleware(wmiddleware.Recoverer, inbox.Middleware)
	router.AddConsumerHandler(handler, r.topic, subscriber, func(msg *message.Message) error {
		if msg.UUID == "warm-up" {
			return nil
		}
		return handle(msg.Context(), msg)
	})
	worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers(), PollInterval: r.poll})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var parts sync.WaitGroup
	parts.Go(func() { _ = router.Run(ctx) })
	parts.Go(func() { _ = worker.Run(ctx) })
	<-router.Running()
	running := &running{rig: r, stop: sync.OnceFunc(func() {
		cancel()
		_ = router.Close()
		_ = subscriber.Close()
		parts.Wait()
	})}
	t.Cleanup(running.stop)
	if r.config.System == "kafka" && r.config.TracerProvider == r.tracers {
		running.deliveries(1, "warm-up")
	}
	return running
}

// publish publishes within a span "client", and returns the message.
func (r *running) publish(id, payload string) *message.Message {
	r.t.Helper()
	ctx, span := r.tracers.Tracer("test").Start(context.Background(), "client")
	defer span.End()
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata.Set("authorization", canary)
	msg.SetContext(ctx)
	require.NoError(r.t, r.publisher.Publish(r.topic, msg))
	return msg
}

// ended waits until n spans have ended that a test is about, and returns them in the order
// of their beginning.
func (r *running) ended(n int, about func(sdktrace.ReadOnlySpan) bool) []sdktrace.ReadOnlySpan {
	r.t.Helper()
	var found []sdktrace.ReadOnlySpan
	require.Eventually(r.t, func() bool {
		found = nil
		for _, span := range r.spans.Ended() {
			if about(span) {
				found = append(found, span)
			}
		}
		return len(found) >= n
	}, 30*time.Second, 5*time.Millisecond)
	require.Len(r.t, found, n)
	slices.SortStableFunc(found, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return found
}

// deliveries returns the n spans of deliveries of a message.
func (r *running) deliveries(n int, id string) []sdktrace.ReadOnlySpan {
	r.t.Helper()
	return r.ended(n, func(s sdktrace.ReadOnlySpan) bool {
		return s.Name() == "process "+r.topic && text(s, "messaging.message.id") == id
	})
}

// beneath returns the ended children of a span that have a name.
func (r *rig) beneath(parent sdktrace.ReadOnlySpan, name string) []sdktrace.ReadOnlySpan {
	var found []sdktrace.ReadOnlySpan
	for _, span := range r.spans.Ended() {
		if span.Name() == name && span.Parent().SpanID() == parent.SpanContext().SpanID() {
			found = append(found, span)
		}
	}
	return found
}

// text is an attribute of a span, "" if it has none of the name.
func text(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}
