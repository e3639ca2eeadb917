package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores"
)

// inventory is what there is of spans and metrics: names, and the attributes of each.
type inventory struct {
	spans   map[string]map[string]bool // by operation: kinds
	onSpans map[string]map[string]bool // by operation: attributes
	links   map[string]bool            // values of millpond.link
	metrics map[string]instrument
}

// instrument is a metric without its values.
type instrument struct {
	kind, unit string
	attributes map[string]bool
}

func newInventory() *inventory {
	return &inventory{
		spans: make(map[string]map[string]bool), onSpans: make(map[string]map[string]bool),
		links: make(map[string]bool), metrics: make(map[string]instrument),
	}
}

// collect adds what a rig has made. The first word of a span's name is its operation.
func (i *inventory) collect(r *rig) {
	for _, span := range r.spans.Ended() {
		operation, _, _ := strings.Cut(span.Name(), " ")
		if operation == "client" {
			continue // of the tests
		}
		if i.spans[operation] == nil {
			i.spans[operation], i.onSpans[operation] = make(map[string]bool), make(map[string]bool)
		}
		i.spans[operation][span.SpanKind().String()] = true
		add(i.onSpans[operation], span.Attributes())
		for _, event := range span.Events() {
			add(i.onSpans[operation], event.Attributes)
		}
		for _, link := range span.Links() {
			add(i.onSpans[operation], link.Attributes)
			for _, a := range link.Attributes {
				i.links[a.Value.AsString()] = true
			}
		}
	}
	for _, m := range r.metrics() {
		known, ok := i.metrics[m.Name]
		if !ok {
			known = instrument{kind: kindOf(m), unit: m.Unit, attributes: make(map[string]bool)}
			i.metrics[m.Name] = known
		}
		for _, set := range attributesOf(m) {
			add(known.attributes, set.ToSlice())
		}
	}
}

func add(names map[string]bool, attributes []attribute.KeyValue) {
	for _, a := range attributes {
		names[string(a.Key)] = true
	}
}

func kindOf(m metricdata.Metrics) string {
	monotonic := map[bool]string{true: "counter", false: "up-down counter"}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		return monotonic[data.IsMonotonic]
	case metricdata.Sum[float64]:
		return monotonic[data.IsMonotonic]
	case metricdata.Gauge[float64]:
		return "gauge"
	case metricdata.Histogram[float64]:
		return "histogram"
	}
	return "unknown"
}

// takeInventory makes everything happen that makes spans and metrics.
func takeInventory(t *testing.T) *inventory {
	all := newInventory()
	rig := newRig(t, both["memory"])
	rig.config.Store = pool{}
	begun, end := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	r := rig.run(func(_ context.Context, msg *message.Message) error {
		switch msg.UUID {
		case "slow":
			begun <- struct{}{}
			<-end
		case "bad":
			return errors.New("no")
		case "panics":
			panic("ouch")
		}
		return nil
	})
	t.Cleanup(release) // before the service is stopped

	r.publish("1", "pears")
	r.deliveries(1, "1")
	r.publish("1", "pears") // a duplicate
	r.deliveries(2, "1")
	r.publish("1", "apples") // a conflict
	r.deliveries(3, "1")
	r.publish("bad", "pears") // parked, and failed by its retry
	r.deliveries(2, "bad")
	r.publish("panics", "pears")
	require.NoError(t, r.publisher.Publish(r.topic, message.NewMessage("2", nil), message.NewMessage("3", nil)))
	require.Error(t, r.telemetry.Publisher(refusing{}).Publish(r.topic, message.NewMessage("4", nil)))
	r.publish("slow", "pears")
	<-begun
	r.publish("slow", "pears") // meets the other one, and is held
	require.Eventually(t, func() bool { return r.points("millpond.deliveries.in_flight", "")[""] == 2 }, 30*time.Second, time.Millisecond)
	r.deliveriesOf(2, "claim", "in_flight", "deferred")
	release()
	r.deliveries(2, "slow")
	r.telemetry.Backlog([]stores.OutputCount{{State: stores.OutputPending, Destination: "kafka-eu", N: 1}, {State: stores.OutputFailed, N: 1}})
	r.telemetry.BatchEnded(middleware.BatchEnd{Consumer: stores.Consumer{Service: "shop", Handler: "stock"}, Size: 2, Kept: 1, Failed: 1})
	all.collect(r.rig)

	for _, system := range []string{"kafka", "other"} {
		rare := newRig(t, both["memory"])
		rare.config.System = system
		whatIsRare(t, rare)
		all.collect(rare)
	}
	return all
}

// deliveriesOf waits until so many spans of a name have one of these outcomes.
func (r *running) deliveriesOf(n int, name string, outcomes ...string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		found := 0
		for _, s := range r.spans.Ended() {
			for _, outcome := range outcomes {
				if s.Name() == name && text(s, "millpond.outcome") == outcome {
					found++
				}
			}
		}
		return found >= n
	}, 30*time.Second, time.Millisecond)
}

// whatIsRare tells the hook what a rig does not do by itself.
func whatIsRare(t *testing.T, r *rig) {
	r.config.DestinationTemplate = func(string) string { return "orders" }
	r.config.Relation = telemetry.Link
	tel, err := telemetry.New(r.config)
	require.NoError(t, err)
	defer tel.Close()
	consumer := stores.Consumer{Service: service, Handler: handler}
	msg := message.NewMessage("1", []byte("pears"))
	msg.Metadata = message.Metadata{"traceparent": goodParent}
	ctx := tel.DeliveryStart(context.Background(), middleware.DeliveryStart{
		Consumer: consumer, Topic: "orders.7", Message: msg,
		Facts: brokers.Delivery{Topic: "orders.7", Coordinates: "orders.7/3/42", Count: 2, Suspect: true},
	})
	tel.LookEnd(tel.LookStart(ctx, stores.Key{}), stores.Verdict{Outcome: stores.Claimable}, nil)
	tel.LookEnd(tel.LookStart(ctx, stores.Key{}), stores.Verdict{}, stores.ErrUnavailable)
	tel.ClaimEnd(tel.ClaimStart(ctx, stores.Claim{}), stores.Verdict{}, stores.ErrUnavailable)
	tel.ClaimEnd(tel.ClaimStart(ctx, stores.Claim{}), stores.Verdict{Outcome: stores.Claimed}, nil)
	tel.HandlerEnd(ctx, time.Second, nil)
	tel.CommitEnd(tel.CommitStart(ctx), stores.ErrCommitUnknown)
	for _, end := range []middleware.DeliveryEnd{
		{Result: middleware.ResultNotNow, Err: stores.ErrCommitUnknown, Held: time.Second},
		{Result: middleware.ResultParked, Class: stores.ClassTransient, Attempts: 1, DueIn: time.Second, Retry: true, Held: time.Second},
		{Result: middleware.ResultQuarantined, Reason: stores.ReasonConflict, Retry: true, Held: time.Second},
		{Result: middleware.ResultDuplicate, Cached: true, Held: time.Second},
	} {
		again := tel.DeliveryStart(context.Background(), middleware.DeliveryStart{
			Consumer: consumer, Topic: "orders.7", Message: msg, Facts: brokers.Delivery{Suspect: true},
		})
		tel.DeliveryEnd(again, end)
	}
	// Read while one is in flight.
	require.NoError(t, tel.Publisher(discard{}).Publish("orders.7", msg))
	require.NoError(t, tel.Publisher(discard{}).Publish("orders.7", msg, message.NewMessage("2", nil)))
	require.Error(t, tel.Publisher(refusing{}).Publish("orders.7", msg))
	tel.IntakePaused(stores.ErrUnavailable)
	tel.ServerChanged(nil)
	tel.Relayed("kafka-eu", 1, 1, 1)
	tel.RetrySkipped(consumer, middleware.SkipInFlight, 1)
	tel.DeliveryEnd(ctx, middleware.DeliveryEnd{Result: middleware.ResultCompleted, Runs: 1})
}
