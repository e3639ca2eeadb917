package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/telemetry"
)

const (
	goodTrace  = "0af7651916cd43dd8448eb211c80319c"
	goodParent = "00-" + goodTrace + "-b7ad6b7169203331-01"
)

// What comes from outside may be anything: the message is handled, and its trace is that
// of the header, or begins anew.
func TestHostileTraceContext(t *testing.T) {
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("key%d=value", i)
	}
	for name, c := range map[string]struct {
		metadata message.Metadata
		anew     bool
		baggage  int
	}{
		"good":                 {message.Metadata{"traceparent": goodParent, "tracestate": "a=b", "baggage": "tenant=7"}, false, 1},
		"odd case":             {message.Metadata{"TraceParent": goodParent, "BAGGAGE": "tenant=7"}, false, 1},
		"malformed":            {message.Metadata{"traceparent": "00-zz-01"}, true, 0},
		"all zeros":            {message.Metadata{"traceparent": "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01"}, true, 0},
		"binary":               {message.Metadata{"traceparent": "\x00\xff\xfe", "baggage": "\xff=\x00"}, true, 0},
		"huge traceparent":     {message.Metadata{"traceparent": goodParent + strings.Repeat("0", 100<<10)}, true, 0},
		"100 kB of tracestate": {message.Metadata{"traceparent": goodParent, "tracestate": "a=" + strings.Repeat("b", 100<<10)}, false, 0},
		"malformed tracestate": {message.Metadata{"traceparent": goodParent, "tracestate": "no equals sign"}, false, 0},
		"thousands of entries": {message.Metadata{"traceparent": goodParent, "baggage": strings.Join(many, ",")}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, both["memory"])
			seen := -1
			r := rig.run(func(ctx context.Context, _ *message.Message) error {
				seen = baggage.FromContext(ctx).Len()
				return nil
			})
			plain, err := r.broker.Publisher(brokers.PublisherConfig{})
			require.NoError(t, err)
			msg := message.NewMessage("1", nil)
			msg.Metadata = c.metadata
			require.NoError(t, plain.Publish(r.topic, msg))
			span := r.deliveries(1, "1")[0]
			require.Equal(t, "completed", text(span, "millpond.result"))
			require.Equal(t, !c.anew, span.SpanContext().TraceID().String() == goodTrace)
			require.True(t, span.SpanContext().TraceID().IsValid())
			require.LessOrEqual(t, len(span.SpanContext().TraceState().String()), 2048)
			require.Equal(t, c.baggage, seen)
		})
	}
}

// What a message carried under another case of the name does not survive beside what the
// publisher writes.
func TestPublisherReplacesTraceContext(t *testing.T) {
	r := newRig(t, both["memory"]).run(func(context.Context, *message.Message) error { return nil })
	msg := message.NewMessage("1", nil)
	msg.Metadata = message.Metadata{"Traceparent": goodParent, "kept": "yes"}
	require.NoError(t, r.publisher.Publish(r.topic, msg))
	require.NotContains(t, msg.Metadata, "Traceparent")
	require.Equal(t, "yes", msg.Metadata["kept"])
	send := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+r.topic })[0]
	require.Contains(t, msg.Metadata["traceparent"], send.SpanContext().SpanID().String())
}

// stuck is an exporter that does not return until the end of the test.
type stuck struct{ end chan struct{} }

func (s stuck) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-s.end
	return nil
}
func (stuck) Shutdown(context.Context) error { return nil }

// An exporter that is down costs spans, not messages.
func TestStuckExporter(t *testing.T) {
	rig := newRig(t, both["memory"])
	exporter := stuck{make(chan struct{})}
	exporting := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter,
		sdktrace.WithMaxQueueSize(64), sdktrace.WithBatchTimeout(time.Millisecond), sdktrace.WithExportTimeout(time.Hour)))
	t.Cleanup(func() {
		close(exporter.end)
		_ = exporting.Shutdown(context.Background())
	})
	rig.config.TracerProvider = exporting
	const messages = 500
	done := make(chan struct{}, messages)
	r := rig.run(func(context.Context, *message.Message) error {
		done <- struct{}{}
		return nil
	})
	for i := range messages {
		require.NoError(t, r.publisher.Publish(r.topic, message.NewMessage(fmt.Sprint(i), nil)))
	}
	for range messages {
		select {
		case <-done:
		case <-time.After(60 * time.Second):
			t.Fatal("messages wait for the exporter")
		}
	}
}

// Without anybody who listens, telemetry costs next to nothing.
func TestNothingToTellCostsLittle(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{},
	})
	require.NoError(t, err)
	defer tel.Close()
	for name, metadata := range map[string]message.Metadata{"plain": nil, "traced": {"traceparent": goodParent}} {
		msg := message.NewMessage("1", nil)
		msg.Metadata = metadata
		const most = 5
		if n := testing.AllocsPerRun(100, func() { pass(tel, msg) }); n > most {
			t.Errorf("%s: %.0f allocations a message, at most %d are allowed", name, n, most)
		}
	}
}

type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

// An error whose text cannot be had ends like any other, on a span too.
func TestErrorWhoseMethodPanics(t *testing.T) {
	r := newRig(t, both["memory"]).run(func(context.Context, *message.Message) error { return panickingError{} })
	require.NoError(t, r.publisher.Publish(r.topic, message.NewMessage("1", nil)))
	span := r.deliveries(1, "1")[0]
	require.Equal(t, "parked", text(span, "millpond.result"))
	require.Len(t, span.Events(), 1)
	require.Contains(t, fmt.Sprint(span.Events()[0].Attributes), "whose Error method panicked: no text")
	require.NotContains(t, r.log.String(), "delivery panicked")
}

// What the inbox logs carries the ids of the trace, and nothing of the message.
func TestLogsHaveTraceIDs(t *testing.T) {
	r := newRig(t, both["memory"]).run(func(context.Context, *message.Message) error { return fmt.Errorf("the shelf is empty") })
	msg := message.NewMessage("1", []byte("s3cret-payload"))
	msg.Metadata.Set("authorization", "s3cret-metadata")
	require.NoError(t, r.publisher.Publish(r.topic, msg))
	var first sdktrace.ReadOnlySpan
	require.Eventually(t, func() bool {
		for _, s := range r.spans.Ended() {
			if text(s, "millpond.result") == "parked" {
				first = s
				return true
			}
		}
		return false
	}, 30*time.Second, 5*time.Millisecond)
	c := first.SpanContext()
	require.Contains(t, r.log.String(), "trace_id="+c.TraceID().String()+" span_id="+c.SpanID().String())
	require.Contains(t, r.log.String(), "the shelf is empty")
	require.NotContains(t, r.log.String(), "s3cret")
	for _, s := range r.spans.Ended() {
		for _, a := range s.Attributes() {
			require.NotContains(t, a.Value.String(), "s3cret")
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := telemetry.New(telemetry.Config{Relation: 7})
	require.EqualError(t, err, "telemetry: Config.Relation is 7: use Parent or Link")
}
