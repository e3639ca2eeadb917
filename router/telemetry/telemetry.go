// Package telemetry gives services of package router spans and metrics, when it is
// imported and telemetry.on is true:
//
//	import _ "github.com/millpond-go/millpond/router/telemetry"
//
// Spans go to OpenTelemetry's global tracer provider, which the program sets. The
// propagator is the global one or, if none is set, the W3C's (trace context and baggage).
//
// Metrics go to the global meter provider, unless the service listens (http.listen). Then
// /metrics serves them in the format of Prometheus, with those of the Go runtime and the
// process, and target_info names the service. A program with its own providers calls [New]
// from Config.Program.Telemetry.
//
// Package middleware/telemetry lists the spans and metrics.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/router"
)

func init() {
	router.RegisterTelemetry(func(o router.TelemetryOptions) (router.Telemetry, error) { return New(o, telemetry.Config{}) })
}

// New makes the telemetry of a service. Empty fields of c get the defaults above; with a
// meter provider in c there is no /metrics.
func New(o router.TelemetryOptions, c telemetry.Config) (router.Telemetry, error) {
	if c.System == "" {
		c.System = o.System
	}
	if c.Store == nil {
		c.Store = o.Store
	}
	if o.Link {
		c.Relation = telemetry.Link
	}
	if c.Propagator == nil {
		c.Propagator = otel.GetTextMapPropagator()
		if len(c.Propagator.Fields()) == 0 { // none is set
			c.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		}
	}
	var scraped http.Handler
	if c.MeterProvider == nil && o.Listens {
		provider, handler, err := prometheusProvider(o.Service)
		if err != nil {
			return router.Telemetry{}, err
		}
		c.MeterProvider, scraped = provider, handler
	}
	hook, err := telemetry.New(c)
	if err != nil {
		return router.Telemetry{}, err
	}
	return router.Telemetry{
		Hook: hook, Publisher: hook.Publisher, Log: telemetry.LogHandler, Metrics: scraped, Closer: hook,
	}, nil
}

// prometheusProvider returns a meter provider and the handler of its metrics. Each has its
// own registry, so that two services of one process do not collide.
func prometheusProvider(service string) (*metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := errors.Join(
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	); err != nil {
		return nil, nil, fmt.Errorf("telemetry: %w", err)
	}
	// Without labels of the scope: it is one, and its schema's version changes with updates.
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("telemetry: %w", err)
	}
	about, err := resourceOf(service)
	if err != nil {
		return nil, nil, fmt.Errorf("telemetry: %w", err)
	}
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// resourceOf returns the resource, which names the service in target_info. OpenTelemetry's
// own variables (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) override it.
func resourceOf(service string) (*resource.Resource, error) {
	environment, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}
	return resource.Merge(resource.NewSchemaless(attribute.String("service.name", service)), environment)
}
