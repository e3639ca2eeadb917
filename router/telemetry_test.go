package router_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/router"
)

// Who asks for telemetry in a program that has none is told what to import.
func TestTelemetryWithoutImport(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Telemetry.On = true
	_, err := router.New(t.Context(), c)
	require.EqualError(t, err, `router: telemetry.on is true, and the program has no telemetry: add import _ "github.com/millpond-go/millpond/router/telemetry"`)
}

func TestTelemetryFails(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Telemetry.On = true
	why := errors.New("no such exporter")
	c.Program.Telemetry = func(router.TelemetryOptions) (router.Telemetry, error) { return router.Telemetry{}, why }
	_, err := router.New(t.Context(), c)
	require.ErrorIs(t, err, why)
	require.EqualError(t, err, "router: telemetry: no such exporter")
}

// recorded is telemetry that notes how it is used.
type recorded struct {
	options   router.TelemetryOptions
	published int
	closed    int
}

func (r *recorded) open(o router.TelemetryOptions) (router.Telemetry, error) {
	r.options = o
	return router.Telemetry{
		Publisher: func(p message.Publisher) message.Publisher { return counting{p, &r.published} },
		Log:       func(h slog.Handler) slog.Handler { return h.WithAttrs([]slog.Attr{slog.String("trace", "1")}) },
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }),
		Closer:    closer{&r.closed},
	}, nil
}

type counting struct {
	message.Publisher

	n *int
}

func (p counting) Publish(topic string, messages ...*message.Message) error {
	*p.n += len(messages)
	return p.Publisher.Publish(topic, messages...)
}

type closer struct{ n *int }

func (c closer) Close() error {
	*c.n++
	return nil
}

// Telemetry gets what the service knows, is around its publisher and log, answers
// /metrics, and is closed once.
func TestTelemetryOfTheProgram(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Telemetry.On, c.Telemetry.Relation = true, "link"
	c.HTTP.Listen = "127.0.0.1:0"
	var used recorded
	c.Program.Telemetry = used.open
	svc := r.service(c)
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	stop := r.run(svc)
	require.Equal(t, "shop", used.options.Service)
	require.Equal(t, r.broker.Capabilities().System, used.options.System)
	require.True(t, used.options.Link)
	require.True(t, used.options.Listens)
	require.NoError(t, svc.Publisher().Publish("orders", message.NewMessage("1", nil)))
	require.Equal(t, 1, used.published)
	_, body := get(t, svc, "/metrics")
	require.Equal(t, "metrics", body)
	require.NoError(t, stop())
	require.Equal(t, 1, used.closed)
	require.Contains(t, r.log.String(), "trace=1")

	c.Telemetry.On = false // and then it is not asked
	used = recorded{}
	r.service(c)
	require.Zero(t, used)
}
