package router

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/stores"
)

// RetentionConfig configures the sweeper, which purges what is old. The service sets the
// fields that a file does not have, but Archive.
type RetentionConfig struct {
	Off              bool `config:"off" default:"false" about:"Leave the purge to other processes of the service, or to millpond purge."`
	retention.Config `config:""`
}

// windowOf returns how long completed messages of each handler are kept; 0: for ever.
func (c *Config) windowOf(handler string) time.Duration {
	if own := c.Handlers[handler].Window; own > 0 {
		return own
	}
	if own := c.Retention.ByHandler[handler]; own > 0 {
		return own
	}
	return c.Retention.Window
}

// shortest returns which messages of a handler are forgotten first, and after how long; 0: none.
func (c *Config) shortest(handler string) (kind stores.PurgeKind, window time.Duration) {
	kind, window = stores.PurgeCompleted, c.windowOf(handler)
	for _, other := range []stores.PurgeKind{stores.PurgeFailed, stores.PurgeDiscarded} {
		if own := c.Retention.Of(other); own > 0 && (window <= 0 || own < window) {
			kind, window = other, own
		}
	}
	return kind, window
}

func (r *run) sweeperConfig() retention.Config {
	c := r.config.SweeperConfig()
	c.Logger = r.log
	return c
}

// SweeperConfig returns the configuration of the service's sweeper.
func (c *Config) SweeperConfig() retention.Config {
	s := c.Retention.Config
	s.Service = c.Service
	s.ByHandler = maps.Clone(s.ByHandler)
	if s.ByHandler == nil {
		s.ByHandler = make(map[string]time.Duration)
	}
	for name, handler := range c.Handlers {
		if handler.RenamedFrom != "" { // the consumer has the old name
			name = handler.RenamedFrom
		}
		if handler.Window > 0 {
			s.ByHandler[name] = handler.Window
		}
	}
	return s
}

// sweep adds the sweeper to the parts of the service.
func (r *run) sweep(parts []part) ([]part, error) {
	c := r.sweeperConfig()
	if r.config.Retention.Off {
		r.log.Info("millpond: this process purges nothing (retention.off); another process, or millpond purge, must")
		return parts, nil
	}
	store, ok := r.store.(retention.Store)
	switch {
	case !ok && c.Off():
		return parts, nil
	case !ok:
		return nil, errors.New("router: retention: the store cannot purge: remove the section; on DynamoDB set retention=720h in store.url, for its time to live")
	}
	sweeper, err := retention.New(store, c)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return append(parts, part{"the sweeper", sweeper.Run}), nil
}

// retention checks that nothing is purged that the broker may still deliver.
func (f *fitting) retention(h *handler) {
	kind, window := f.config.shortest(h.name)
	can := f.broker.Capabilities()
	horizon, source := can.ReplayHorizon, "the broker keeps messages for"
	if own := f.config.Broker.ReplayHorizon; own > 0 {
		horizon.Known, horizon.Max, source = true, own, "broker.replay_horizon is"
	}
	if window <= 0 || f.judgesByTime() || !horizon.Known || window > horizon.Max {
		return
	}
	field := "window"
	if kind != stores.PurgeCompleted {
		field = string(kind)
	}
	f.badf("handler %q: %s messages are kept for %s, and %s %s, so that offsets set back that far would run what was purged again: raise retention.%s above %s, or have the broker tell when it took a message (see docs/retention.md)",
		h.name, kind, window, source, horizon.Max, field, horizon.Max)
}

// judgesByTime reports whether messages that were purged are recognized by their time.
func (r *run) judgesByTime() bool {
	return r.broker.Capabilities().Time && !r.store.Capabilities().StaleUnseen
}

// adviseOfRetention says what keeps a purged message from running again, where that is the
// window alone.
func (r *run) adviseOfRetention() {
	c := r.sweeperConfig()
	forgets := c.Window > 0 || c.Failed > 0 || c.Discarded > 0 || len(c.ByHandler) > 0
	if !forgets || r.judgesByTime() {
		return
	}
	if can := r.broker.Capabilities(); !can.ReplayHorizon.Known && r.config.Broker.ReplayHorizon == 0 {
		r.log.Warn("millpond: it is unknown how far back the broker may redeliver messages, and when it took them: a purged message that is redelivered runs again",
			slog.Duration("retention.window", c.Window), slog.String("so that it can be checked", "set broker.replay_horizon to what the topics keep"))
	}
}
