package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// buckets are the ones that the conventions advise for durations of messaging.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// fine are the buckets for one round trip to a database.
var fine = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// labels are the attributes of a measurement, in a form that needs no allocation.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newLabels(attrs ...attribute.KeyValue) *labels {
	option := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &labels{[]metric.AddOption{option}, []metric.RecordOption{option}}
}

func count(ctx context.Context, c metric.Int64Counter, l *labels) {
	if c.Enabled(ctx) {
		c.Add(ctx, 1, l.add...)
	}
}

func took(ctx context.Context, h metric.Float64Histogram, d time.Duration, l *labels) {
	if h.Enabled(ctx) {
		h.Record(ctx, d.Seconds(), l.record...)
	}
}

// instruments are all metrics.
type instruments struct {
	process   metric.Float64Histogram // messaging.process.duration
	consumed  metric.Int64Counter     // messaging.client.consumed.messages
	sent      metric.Int64Counter     // messaging.client.sent.messages
	operation metric.Float64Histogram // messaging.client.operation.duration

	deliveries   metric.Int64Counter
	redeliveries metric.Int64Counter
	cacheHits    metric.Int64Counter
	skipped      metric.Int64Counter
	pauses       metric.Int64Counter
	servers      metric.Int64Counter
	relayed      metric.Int64Counter
	batches      metric.Int64Counter
	members      metric.Int64Counter
	batchSize    metric.Float64Histogram
	claim        metric.Float64Histogram
	look         metric.Float64Histogram
	handler      metric.Float64Histogram
	transaction  metric.Float64Histogram
	held         metric.Float64Histogram

	inFlight  metric.Int64ObservableUpDownCounter
	oldest    metric.Float64ObservableGauge
	waiting   metric.Int64ObservableUpDownCounter
	lag       metric.Float64ObservableGauge
	usage     metric.Int64ObservableUpDownCounter
	waits     metric.Int64ObservableCounter
	waited    metric.Float64ObservableCounter
	usedState [2]metric.MeasurementOption
}

// maker makes instruments and collects the errors.
type maker struct {
	metric.Meter
	err error
}

func made[T any](m *maker, instrument T, err error) T {
	if err != nil && m.err == nil {
		m.err = err
	}
	return instrument
}

func (m *maker) counter(name, unit, about string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	return made(m, c, err)
}

func (m *maker) seconds(name, about string, buckets []float64) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(buckets...))
	return made(m, h, err)
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	m := &maker{Meter: meter}
	process, consumed, sent, operation := messagingconv.ProcessDuration{}, messagingconv.ClientConsumedMessages{}, messagingconv.ClientSentMessages{}, messagingconv.ClientOperationDuration{}
	i := &instruments{
		process:   m.seconds(process.Name(), process.Description(), buckets),
		consumed:  m.counter(consumed.Name(), consumed.Unit(), consumed.Description()),
		sent:      m.counter(sent.Name(), sent.Unit(), sent.Description()),
		operation: m.seconds(operation.Name(), operation.Description(), buckets),

		deliveries:   m.counter("millpond.deliveries", "{delivery}", "Ended deliveries, by result."),
		redeliveries: m.counter("millpond.redeliveries", "{delivery}", "Deliveries that may not be the first of their message."),
		cacheHits:    m.counter("millpond.cache.hits", "{delivery}", "Duplicates found in the cache, without a query."),
		skipped:      m.counter("millpond.retries.skipped", "{message}", "Due messages that the retry worker did not run, by reason."),
		servers:      m.counter("millpond.server.changes", "{change}", "How often the database server was replaced, restarted or restored."),
		relayed:      m.counter("millpond.outbox.relayed", "{message}", "Messages of the outbox that were handed to their destination, by its answer."),
		batches:      m.counter("millpond.batches", "{batch}", "Transactions that several messages shared, by result."),
		members:      m.counter("millpond.batch.members", "{message}", "Messages that shared transactions, by result."),
		pauses:       m.counter("millpond.intake.pauses", "{pause}", "How often the intake paused because the store did not answer."),
		claim:        m.seconds("millpond.claim.duration", "How long a claim took, including the wait for a connection.", fine),
		look:         m.seconds("millpond.look.duration", "How long the look-up of a message before its claim took.", fine),
		handler:      m.seconds("millpond.handler.duration", "How long a run of the handler took.", buckets),
		transaction:  m.seconds("millpond.transaction.duration", "How long a claiming transaction was open, including its commit.", buckets),
		held:         m.seconds("millpond.held.duration", "How long held deliveries were held.", buckets),
	}
	var err error
	i.batchSize, err = meter.Float64Histogram("millpond.batch.size", metric.WithUnit("{message}"),
		metric.WithDescription("How many messages shared a transaction."), metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 12, 16, 24, 32))
	made(m, i.batchSize, err)
	i.inFlight, err = meter.Int64ObservableUpDownCounter("millpond.deliveries.in_flight", metric.WithUnit("{delivery}"),
		metric.WithDescription("Deliveries in flight in the inbox."))
	made(m, i.inFlight, err)
	i.oldest, err = meter.Float64ObservableGauge("millpond.deliveries.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest delivery in flight."))
	made(m, i.oldest, err)
	i.waiting, err = meter.Int64ObservableUpDownCounter("millpond.outbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages of the outbox that wait to be published or have failed; counts are bounded."))
	made(m, i.waiting, err)
	i.lag, err = meter.Float64ObservableGauge("millpond.outbox.oldest.age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest message that waits to be published."))
	made(m, i.lag, err)
	i.usage, err = meter.Int64ObservableUpDownCounter("millpond.store.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections of the store, by state."))
	made(m, i.usage, err)
	i.waits, err = meter.Int64ObservableCounter("millpond.store.connection.waits", metric.WithUnit("{wait}"),
		metric.WithDescription("How often a caller waited for a connection of the store."))
	made(m, i.waits, err)
	i.waited, err = meter.Float64ObservableCounter("millpond.store.connection.wait_time", metric.WithUnit("s"),
		metric.WithDescription("How long all callers waited for a connection, in total."))
	made(m, i.waited, err)
	for n, state := range []string{"used", "idle"} {
		i.usedState[n] = metric.WithAttributeSet(attribute.NewSet(keyState.String(state)))
	}
	return i, m.err
}

// observed are the instruments that report when they are collected.
func (i *instruments) observed(withStore bool) []metric.Observable {
	all := []metric.Observable{i.inFlight, i.oldest, i.waiting, i.lag}
	if withStore {
		all = append(all, i.usage, i.waits, i.waited)
	}
	return all
}

func (i *instruments) observe(o metric.Observer, f *inFlight, store stores.PoolReporter) {
	n, age := f.state()
	o.ObserveInt64(i.inFlight, n)
	o.ObserveFloat64(i.oldest, age.Seconds())
	if store == nil {
		return
	}
	use := store.PoolUse()
	o.ObserveInt64(i.usage, int64(use.InUse), i.usedState[0])
	o.ObserveInt64(i.usage, int64(use.Idle), i.usedState[1])
	o.ObserveInt64(i.waits, use.Waits)
	o.ObserveFloat64(i.waited, use.Waited.Seconds())
}

// ended counts a delivery.
func (i *instruments) ended(ctx context.Context, end *middleware.DeliveryEnd, c *consumer, how *labels) {
	count(ctx, i.deliveries, how)
	count(ctx, i.consumed, c.labels)
	took(ctx, i.process, end.Took, how)
	if end.Cached {
		count(ctx, i.cacheHits, c.labels)
	}
	if end.Held > 0 {
		took(ctx, i.held, end.Held, how)
	}
}

// IntakePaused implements middleware.IntakeHook.
func (t *Telemetry) IntakePaused(error) { t.metrics.pauses.Add(context.Background(), 1) }

// IntakeResumed implements middleware.IntakeHook.
func (t *Telemetry) IntakeResumed(time.Duration) {}

// ServerChanged implements middleware.ServerHook.
func (t *Telemetry) ServerChanged(error) { t.metrics.servers.Add(context.Background(), 1) }

// RetrySkipped implements middleware.RetrySkipHook.
func (t *Telemetry) RetrySkipped(c stores.Consumer, reason middleware.SkipReason, n int) {
	t.metrics.skipped.Add(context.Background(), int64(n), metric.WithAttributes(
		keyConsumer.String(cut(c.Service+"/"+c.Handler)), keySkip.String(string(reason))))
}
