package router

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Telemetry makes the spans and metrics of a service. Each field is optional.
type Telemetry struct {
	Hook      middleware.Hook                           // for the inbox
	Publisher func(message.Publisher) message.Publisher // decorates the service's publisher
	Log       func(slog.Handler) slog.Handler           // decorates its log
	Metrics   http.Handler                              // answers /metrics
	io.Closer                                           // closed after the last message
}

// TelemetryOptions describes a service to its telemetry.
type TelemetryOptions struct {
	Service string
	System  string // the broker's name, as in its capabilities
	Link    bool   // telemetry.relation is link
	Listens bool   // http.listen is set, so /metrics can be read

	Store stores.PoolReporter // nil if the store does not report it
}

var registered struct {
	mu   sync.Mutex
	open func(TelemetryOptions) (Telemetry, error)
}

// RegisterTelemetry registers the function that makes the telemetry of services. Package
// router/telemetry calls it when it is imported; a second call panics.
func RegisterTelemetry(open func(TelemetryOptions) (Telemetry, error)) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if registered.open != nil {
		panic("router: RegisterTelemetry was called twice")
	}
	registered.open = open
}

// importTelemetry finds what makes the telemetry, if it is on.
func (c *Config) importTelemetry() error {
	if !c.Telemetry.On || c.Program.Telemetry != nil {
		return nil
	}
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if c.Program.Telemetry = registered.open; registered.open == nil {
		return errors.New(`router: telemetry.on is true, and the program has no telemetry: add import _ "` + module + `/router/telemetry"`)
	}
	return nil
}

// openTelemetry makes the telemetry if it is on.
func (w *wiring) openTelemetry() error {
	if !w.config.Telemetry.On {
		return nil
	}
	options := TelemetryOptions{
		Service: w.config.Service,
		System:  w.broker.Capabilities().System,
		Link:    w.config.Telemetry.Relation == "link",
		Listens: w.config.HTTP.Listen != "",
	}
	options.Store, _ = w.store.(stores.PoolReporter)
	var err error
	if w.telemetry, err = w.config.Program.Telemetry(options); err != nil {
		return fmt.Errorf("router: telemetry: %w", err)
	}
	if w.telemetry.Publisher != nil {
		w.publisher = w.telemetry.Publisher(w.publisher)
	}
	if w.telemetry.Log != nil {
		w.log = slog.New(w.telemetry.Log(w.log.Handler()))
	}
	return nil
}
