package telemetry_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/millpond-go/millpond/router"
	_ "github.com/millpond-go/millpond/router/telemetry"
)

// A program says where spans go before it loads the service. The exporter is
// OpenTelemetry's, such as that of otlptracegrpc.New, which reads
// OTEL_EXPORTER_OTLP_ENDPOINT.
func Example_spans() {
	serve := func(ctx context.Context, exporter sdktrace.SpanExporter) {
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
		defer func() { _ = provider.Shutdown(context.WithoutCancel(ctx)) }()
		otel.SetTracerProvider(provider)

		svc, err := router.Load(ctx, "millpond.yaml") // telemetry.on: true
		if err != nil {
			log.Fatal(err)
		}
		if err := svc.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}
	_ = serve
}
