package main

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// providers make the spans of the services: one for each, as in programs of their own.
// Spans are kept in memory, to be printed. They are sent to a collector, too, if one of the
// standard variables names it; the others, such as OTEL_EXPORTER_OTLP_HEADERS, count as well.
type providers struct {
	kept    *tracetest.InMemoryExporter
	otlp    bool
	started []*sdktrace.TracerProvider
}

func newProviders(e *environment) *providers {
	return &providers{
		kept: tracetest.NewInMemoryExporter(),
		otlp: e.get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || e.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "",
	}
}

func (p *providers) of(ctx context.Context, service string) (*sdktrace.TracerProvider, error) {
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName(service))),
		sdktrace.WithSyncer(p.kept),
	}
	if p.otlp {
		exporter, err := otlptracegrpc.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	provider := sdktrace.NewTracerProvider(options...)
	p.started = append(p.started, provider)
	return provider, nil
}

// shutdown sends what has not been sent.
func (p *providers) shutdown(ctx context.Context) error {
	var errs []error
	for _, provider := range p.started {
		errs = append(errs, provider.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
