package telemetry_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores"
)

// pass is what the inbox tells its hooks of a first delivery.
func pass(t *telemetry.Telemetry, msg *message.Message) {
	key := stores.Consumer{Service: "bench", Handler: "stock"}
	ctx := t.DeliveryStart(context.Background(), middleware.DeliveryStart{Consumer: key, Topic: "orders", Message: msg})
	t.TraceParent(ctx)
	verdict := stores.Verdict{Outcome: stores.Claimed}
	t.ClaimEnd(t.ClaimStart(ctx, stores.Claim{}), verdict, nil)
	t.HandlerEnd(ctx, 1, nil)
	t.CommitEnd(t.CommitStart(ctx), nil)
	t.DeliveryEnd(ctx, middleware.DeliveryEnd{Result: middleware.ResultCompleted, Outcome: stores.Claimed, Runs: 1})
}

// nowhere is where a batch processor exports to.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// BenchmarkDelivery is what telemetry adds to a delivery.
func BenchmarkDelivery(b *testing.B) {
	msg := message.NewMessage("1", nil)
	traced := message.NewMessage("2", nil)
	traced.Metadata.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	measured := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	exporting := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}))
	b.Cleanup(func() { _ = exporting.Shutdown(context.Background()) })
	for _, c := range []struct {
		name   string
		tracer trace.TracerProvider
		meter  metric.MeterProvider
		msg    *message.Message
	}{
		{"no-op", tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider(), msg},
		{"no-op, traced message", tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider(), traced},
		{"spans", sdktrace.NewTracerProvider(), metricnoop.NewMeterProvider(), msg},
		{"metrics", tracenoop.NewTracerProvider(), measured, msg},
		{"spans in batches, and metrics", exporting, measured, msg},
	} {
		b.Run(c.name, func(b *testing.B) {
			t, err := telemetry.New(telemetry.Config{
				TracerProvider: c.tracer, MeterProvider: c.meter, Propagator: propagation.TraceContext{},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				pass(t, c.msg)
			}
		})
	}
}
