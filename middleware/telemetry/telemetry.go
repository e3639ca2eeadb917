package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Relation is how the span of a delivery relates to the span that made its message.
type Relation int

const (
	// Parent makes the message's span the parent, so that one trace shows a message from its
	// producer to the effects. It is the default; the convention allows it because a handler gets
	// one message at a time.
	Parent Relation = iota
	// Link begins a trace with each delivery and links it to the message's span. It is the
	// convention's default: traces stay small where one message causes thousands.
	Link
)

// Config configures [New]. The zero value uses OpenTelemetry's global providers and propagator,
// even if they are set after New.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator reads and writes the metadata of messages. The global one does nothing until it
	// is set.
	Propagator propagation.TextMapPropagator

	// System is the broker's name, as in brokers.Capabilities.System. If it is empty, spans and
	// metrics do not name the broker.
	System string

	Relation Relation

	// DestinationTemplate returns the kind of a topic, such as "orders.{tenant}" for
	// "orders.7", so that spans have few names. If it is nil, spans name the topic, and
	// metrics do not. It must be safe for concurrent use. If it panics, the kind is
	// "_OTHER".
	DestinationTemplate func(topic string) string

	// Store, if not nil, reports its connections.
	Store stores.PoolReporter
}

// Telemetry is a hook of the inbox that makes spans and metrics of deliveries, and
// decorates publishers. It is safe for concurrent use.
type Telemetry struct {
	config     Config
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	metrics    *instruments
	inFlight   inFlight
	backlog    atomic.Pointer[[]stores.OutputCount]

	mu        sync.RWMutex
	consumers map[consumerKey]*consumer

	unregister func() error
}

var (
	_ middleware.DeliveryStartHook = (*Telemetry)(nil)
	_ middleware.TraceParentHook   = (*Telemetry)(nil)
	_ middleware.DeliveryEndHook   = (*Telemetry)(nil)
	_ middleware.ClaimStartHook    = (*Telemetry)(nil)
	_ middleware.ClaimEndHook      = (*Telemetry)(nil)
	_ middleware.LookStartHook     = (*Telemetry)(nil)
	_ middleware.LookEndHook       = (*Telemetry)(nil)
	_ middleware.HandlerEndHook    = (*Telemetry)(nil)
	_ middleware.CommitStartHook   = (*Telemetry)(nil)
	_ middleware.CommitEndHook     = (*Telemetry)(nil)
	_ middleware.IntakeHook        = (*Telemetry)(nil)
	_ middleware.ServerHook        = (*Telemetry)(nil)
	_ middleware.RetrySkipHook     = (*Telemetry)(nil)
)

// New returns a hook for InboxConfig.Hooks. It fails if the meter provider refuses an instrument.
func New(c Config) (*Telemetry, error) {
	if c.Relation != Parent && c.Relation != Link {
		return nil, fmt.Errorf("telemetry: Config.Relation is %d: use Parent or Link", c.Relation)
	}
	t := &Telemetry{config: c, propagator: c.Propagator, consumers: make(map[consumerKey]*consumer)}
	tracers, meters := c.TracerProvider, c.MeterProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if t.propagator == nil {
		t.propagator = otel.GetTextMapPropagator()
	}
	t.tracer = tracers.Tracer(scope, trace.WithSchemaURL(schemaURL))
	meter := meters.Meter(scope, metric.WithSchemaURL(schemaURL))
	var err error
	if t.metrics, err = newInstruments(meter); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	observed, err := meter.RegisterCallback(t.observe, t.metrics.observed(c.Store != nil)...)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.unregister = observed.Unregister
	return t, nil
}

// Close stops the observed metrics: deliveries in flight, the age of the oldest, and the
// store's connections. It does not close the providers.
func (t *Telemetry) Close() error {
	if err := t.unregister(); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}

// template returns the kind of a topic by the program's function.
func (t *Telemetry) template(topic string) string {
	kind := otherValue
	_ = callback.Call("it", func() error { // the panic has no log here
		kind = t.config.DestinationTemplate(topic)
		return nil
	})
	return kind
}

var errStoppedEarly = errors.New("the delivery ended in the middle of it")

func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.metrics.observe(o, &t.inFlight, t.config.Store)
	t.observeBacklog(o)
	return nil
}
