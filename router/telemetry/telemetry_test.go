package telemetry_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	_ "github.com/millpond-go/millpond/brokers/memory"
	hooks "github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/router/telemetry"
	_ "github.com/millpond-go/millpond/stores/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is in payloads, metadata and ids, and must be nowhere else.
const canary = "c4nary"

// run runs a service that was configured by text until the test ends.
func run(t *testing.T, file string, program func(*router.Program)) *router.Service {
	t.Helper()
	config, err := router.ReadConfig(nil, "", append(strings.Fields(file),
		"MILLPOND_SERVICE=shop", "MILLPOND_BROKER_URL=memory://", "MILLPOND_STORE_URL=sqlite://"+filepath.Join(t.TempDir(), "shop.db"),
		"MILLPOND_RETRY_MAX_ATTEMPTS=1", "MILLPOND_TELEMETRY_ON=true"))
	require.NoError(t, err)
	config.Program.NoSignals = true
	config.Program.Logger = slog.New(slog.DiscardHandler)
	if program != nil {
		program(&config.Program)
	}
	svc, err := router.New(t.Context(), config)
	require.NoError(t, err)
	svc.Handle("stock", "orders", func(msg *message.Message) error {
		if msg.Metadata.Get("bad") != "" {
			return errors.New("the shelf is empty")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	select {
	case <-svc.Watermill().Running():
	case <-time.After(time.Minute):
		require.Fail(t, "the service does not start")
	}
	return svc
}

func publish(t *testing.T, svc *router.Service) {
	t.Helper()
	good, bad := message.NewMessage(canary+"-1", []byte(canary)), message.NewMessage(canary+"-2", []byte(canary))
	good.Metadata.Set("authorization", canary)
	bad.Metadata.Set("bad", canary)
	require.NoError(t, svc.Publisher().Publish("orders", good))
	require.NoError(t, svc.Publisher().Publish("orders", good.Copy()))
	require.NoError(t, svc.Publisher().Publish("orders", bad))
}

func metrics(t require.TestingT, svc *router.Service) (status int, text string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+svc.HTTPAddr().String()+"/metrics", nil)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// shows keeps failures from repeating a long text.
func shows(text, what string) bool { return strings.Contains(text, what) }

// With http.listen metrics are there for Prometheus, and no label tells what a message is.
func TestPrometheus(t *testing.T) {
	svc := run(t, "MILLPOND_HTTP_LISTEN=127.0.0.1:0", nil)
	publish(t, svc)
	var text string
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var status int
		status, text = metrics(c, svc)
		assert.Equal(c, http.StatusOK, status)
		for _, line := range []string{
			`millpond_result="completed"} 1`, `millpond_cached="true",millpond_result="duplicate"`, `millpond_result="failed"} 1`,
			"millpond_deliveries_in_flight", "messaging_process_duration_seconds_bucket", "messaging_client_sent_messages_total",
			"millpond_deliveries_oldest_age_seconds", "millpond_handler_duration_seconds_bucket", "go_goroutines", "process_cpu_seconds_total",
		} {
			assert.True(c, shows(text, line), line)
		}
	}, 30*time.Second, 10*time.Millisecond)
	for _, absent := range []string{canary, "the shelf", "otel_scope"} {
		require.False(t, shows(text, absent), absent)
	}
}

// Who scrapes several services tells them by the name that the file has, unless the
// environment of OpenTelemetry has another.
func TestMetricsNameTheService(t *testing.T) {
	for variable, want := range map[string]string{
		"":                        `service_name="shop"`,
		"OTEL_SERVICE_NAME=kiosk": `service_name="kiosk"`,
		"OTEL_RESOURCE_ATTRIBUTES=service.name=x": `service_name="x"`,
	} {
		if name, value, set := strings.Cut(variable, "="); set {
			t.Setenv(name, value)
		}
		svc := run(t, "MILLPOND_HTTP_LISTEN=127.0.0.1:0", nil)
		_, text := metrics(t, svc)
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "target_info{") {
				require.Contains(t, line, want, variable)
			}
		}
		require.True(t, shows(text, "target_info{"))
		for _, name := range []string{"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} {
			t.Setenv(name, "")
		}
	}
}

// Two services of one process have metrics of their own.
func TestTwoServices(t *testing.T) {
	a := run(t, "MILLPOND_HTTP_LISTEN=127.0.0.1:0", nil)
	b := run(t, "MILLPOND_HTTP_LISTEN=127.0.0.1:0", nil)
	publish(t, a)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, text := metrics(c, a)
		assert.True(c, shows(text, "millpond_deliveries_total"))
	}, 30*time.Second, 10*time.Millisecond)
	_, text := metrics(t, b)
	require.False(t, shows(text, "millpond_deliveries_total"))
}

// Without anything in the program, spans go to the global provider, with the propagators
// of the W3C.
func TestGlobalProvider(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
	svc := run(t, "", nil)
	require.Nil(t, svc.HTTPAddr())
	publish(t, svc)
	oneTrace(t, spans)
}

// Providers of the program's own, which then wants its metrics elsewhere.
func TestOwnProviders(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	svc := run(t, "MILLPOND_HTTP_LISTEN=127.0.0.1:0", func(p *router.Program) {
		p.Telemetry = func(o router.TelemetryOptions) (router.Telemetry, error) {
			return telemetry.New(o, hooks.Config{
				TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
				MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
			})
		}
	})
	publish(t, svc)
	oneTrace(t, spans)
	status, _ := metrics(t, svc)
	require.Equal(t, http.StatusNotFound, status)
}

// oneTrace waits for a delivery, and for what is beneath and above it.
func oneTrace(t *testing.T, spans *tracetest.InMemoryExporter) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		traces := make(map[string]map[string]bool)
		for _, s := range spans.GetSpans() {
			id := s.SpanContext.TraceID().String()
			if traces[id] == nil {
				traces[id] = make(map[string]bool)
			}
			traces[id][s.Name] = true
		}
		for _, names := range traces {
			if names["send orders"] && names["process orders"] && names["claim"] && names["commit"] {
				return
			}
		}
		assert.Fail(c, "no trace has all spans", traces)
	}, 30*time.Second, 10*time.Millisecond)
}

func TestRelation(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
	svc := run(t, "MILLPOND_TELEMETRY_RELATION=link", nil)
	publish(t, svc)
	require.Eventually(t, func() bool {
		for _, s := range spans.GetSpans() {
			if s.Name == "process orders" {
				return !s.Parent.IsValid() && len(s.Links) > 0
			}
		}
		return false
	}, 30*time.Second, 10*time.Millisecond)
}
