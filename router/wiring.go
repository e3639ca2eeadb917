package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// wiring has what New opens for a service, and Close closes. It does not change in between.
type wiring struct {
	config    Config
	log       *slog.Logger
	broker    brokers.Broker
	publisher message.Publisher
	store     stores.Store
	roomy     bool // the service chose the size of the store's pool
	telemetry Telemetry
	inboxed   middleware.InboxConfig // the configuration of the inbox
	inbox     *middleware.Inbox
	watermill *message.Router
	relay     poked // set by Run

	destinations []*destination // of the relay, by name
}

// open opens everything in order. After an error, too, close closes what was opened.
func (w *wiring) open(ctx context.Context) error {
	if err := errors.Join(w.openBroker(ctx), w.openStore(ctx), w.openDestinations(ctx)); err != nil {
		return err
	}
	if err := w.openTelemetry(); err != nil {
		return err
	}
	if err := w.makeInbox(); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	var err error
	// Watermill's router must not give up before Run does: it would report a handler that
	// still runs as ended.
	w.watermill, err = message.NewRouter(message.RouterConfig{CloseTimeout: w.config.DrainTimeout + time.Minute}, watermill.NewSlogLogger(w.quiet()))
	if err != nil {
		return fmt.Errorf("router: %w", err)
	}
	return nil
}

func (w *wiring) openBroker(ctx context.Context) error {
	var err error
	if w.broker, w.publisher, err = w.openURL(ctx, w.config.Broker.URL); err != nil {
		return w.brokerError(err)
	}
	return nil
}

func (w *wiring) openStore(ctx context.Context) error {
	store, err := w.config.Program.Stores.Open(ctx, w.config.Store.URL.Reveal())
	if err != nil {
		return w.storeError(err)
	}
	w.store = store
	if err := w.makeRoom(ctx); err != nil {
		return w.storeError(err)
	}
	if logging, ok := w.store.(interface{ SetLogger(l *slog.Logger) }); ok {
		logging.SetLogger(w.log)
	}
	return nil
}

// brokerError adds the broker to an error of its adapter, without the secrets of its URL.
func (w *wiring) brokerError(err error) error {
	return w.config.urlError("broker.url", w.config.Broker.URL, err)
}

// storeError adds the store to an error of its adapter, without the secrets of its URL.
func (w *wiring) storeError(err error) error {
	return w.config.urlError("store.url", w.config.Store.URL, err)
}

func (c *Config) urlError(field string, u URL, err error) error {
	return fmt.Errorf("router: %s %s: %w", c.named(field), u, withoutSecrets(err, u))
}

func (w *wiring) makeInbox() (err error) {
	w.inboxed = w.config.inboxConfig(w.publisher)
	w.inboxed.Outputs = w.outputs()
	if w.inboxed.Logger == nil {
		w.inboxed.Logger = w.log
	}
	if w.telemetry.Hook != nil {
		w.inboxed.Hooks = append(slices.Clip(w.inboxed.Hooks), w.telemetry.Hook)
	}
	if producers, ok := w.store.(stores.OutputChecker); ok && w.inboxed.Outputs != nil {
		producers.CheckOutputs(w.inboxed.Outputs.Check)
	}
	w.inbox, err = middleware.NewInbox(w.store, w.inboxed)
	return err
}

// close closes the listener of a service that ran, and then everything that was opened.
func (w *wiring) close(listener io.Closer) error {
	type part struct {
		what   string
		closer io.Closer
	}
	parts := []part{{"listener", listener}, {"publisher", w.publisher}, {"broker", w.broker}, {"telemetry", w.telemetry.Closer}, {"store", w.store}}
	for _, d := range w.destinations {
		parts = append(parts, part{"destination " + d.name, d})
	}
	var errs []error
	for _, c := range parts {
		if c.closer == nil {
			continue
		}
		if err := c.closer.Close(); err != nil {
			errs = append(errs, fmt.Errorf("router: cannot close the %s: %w", c.what, err))
		}
	}
	return errors.Join(errs...)
}

func (c LogConfig) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // Validate has checked it
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// quiet returns the log for Watermill's router. It leaves out the lines about every message,
// unless the level is debug.
func (w *wiring) quiet() *slog.Logger {
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		return w.log
	}
	return loglimit.OfRouter(w.log, middleware.ErrNotNow)
}
