package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/stores"
)

// Windows say how long rows are kept; 0: for ever.
type Windows struct {
	Window      time.Duration `config:"window" example:"168h" check:"positive" about:"How long completed messages are kept, at least 6h5m. A message that is redelivered later may run again, so the window must be longer than the broker keeps or replays messages; see docs/retention.md. Default: for ever."`
	Failed      time.Duration `config:"failed" example:"2160h" check:"positive" about:"How long messages that have failed for good are kept, at least 6h5m, and not less than window. Default: for ever."`
	Discarded   time.Duration `config:"discarded" example:"720h" check:"positive" about:"The same for messages that an operator has discarded."`
	Quarantined time.Duration `config:"quarantined" example:"2160h" check:"positive" about:"How long messages stay in quarantine. Default: for ever."`
	Published   time.Duration `config:"published" example:"168h" check:"positive" about:"How long the outbox's history is kept. Default: for ever."`
	Audited     time.Duration `config:"audited" example:"8760h" check:"positive" about:"How long the audit of operators' decisions is kept. Default: for ever."`
}

// Of returns the window of a kind.
func (w *Windows) Of(kind stores.PurgeKind) time.Duration {
	switch kind {
	case stores.PurgeCompleted:
		return w.Window
	case stores.PurgeFailed:
		return w.Failed
	case stores.PurgeDiscarded:
		return w.Discarded
	case stores.PurgeQuarantined:
		return w.Quarantined
	case stores.PurgePublished:
		return w.Published
	case stores.PurgeAudited:
		return w.Audited
	}
	return 0
}

func (w *Windows) off() bool { return *w == Windows{} }

// Config configures a [Sweeper]. Zero values mean the defaults of their tags.
type Config struct {
	// Service is the service whose consumers are swept. Required: each service of a store has
	// windows of its own.
	Service string

	Windows `config:""`
	// ByHandler replaces Window for single handlers.
	ByHandler map[string]time.Duration

	// Retired allows windows shorter than MinWindow, for consumers that no process serves any
	// more.
	Retired bool

	Every time.Duration `config:"every" default:"10m" check:"positive" about:"How often one of the service's processes looks for what can be purged."`
	Rate  int           `config:"rate" default:"5000" check:"positive" about:"The largest number of rows deleted per second."`

	// Archive gets rows before they are deleted. If the process dies, it may get the same rows
	// again. An error stops the purge until the next time.
	Archive func(context.Context, []stores.PurgedRow) error

	Logger *slog.Logger // nil: slog.Default
}

// Store is what a sweeper needs from a store.
type Store interface {
	stores.Purger
	stores.Leases
}

const (
	batch  = 1000 // rows per range
	leases = "retention/"
	ttl    = time.Minute
	// silence is how long a consumer that completes nothing counts as stopped. When it comes
	// back, it gets the messages that were in flight.
	silence = 24 * time.Hour
	slack   = time.Hour // LateTime counts for a day, and consumers that work daily are not always punctual
	// clocks is by how much the clocks of the database and of this program may differ. A larger
	// difference means that one of them has jumped.
	clocks  = time.Hour
	settle  = 2 * time.Second  // between an announcement and the check for transactions that have not seen it
	longest = 10 * time.Minute // the longest wait for these transactions
)

// MinWindow is the shortest window of completed messages: the purge learns of late deliveries
// only once they are stores.LateAfter old, and the clocks of broker and database may differ by
// stores.ClockMargin.
const MinWindow = stores.LateAfter + stores.ClockMargin

// Validate returns all errors at once.
func (c *Config) Validate() error {
	all := field.Check(c, field.Names{Go: true})
	if c.Service == "" {
		all = append(all, field.Error{Field: "Service", Text: "is empty: name the service whose messages are purged"})
	}
	for _, other := range []struct {
		name   string
		window time.Duration
	}{{"Failed", c.Failed}, {"Discarded", c.Discarded}} {
		for _, window := range append(values(c.ByHandler), c.Window) {
			if other.window > 0 && other.window < window {
				all = append(all, field.Error{Field: other.name, Text: fmt.Sprintf("is %s, and completed messages are kept for %s: use at least that", other.window, window)})
				break
			}
		}
	}
	tooShort := func(window time.Duration) string {
		return fmt.Sprintf("is %s: new messages would count as stale, because deliveries are known as late only after %s and clocks may differ by %s: use at least %s",
			window, stores.LateAfter, stores.ClockMargin, MinWindow)
	}
	for _, forgets := range []struct {
		name   string
		window time.Duration
	}{{"Window", c.Window}, {"Failed", c.Failed}, {"Discarded", c.Discarded}} {
		if 0 < forgets.window && forgets.window < MinWindow && !c.Retired {
			all = append(all, field.Error{Field: forgets.name, Text: tooShort(forgets.window)})
		}
	}
	for handler, window := range c.ByHandler {
		var text string
		switch {
		case window <= 0:
			text = fmt.Sprintf("is %s: use a positive duration", window)
		case window < MinWindow && !c.Retired:
			text = tooShort(window)
		default:
			continue
		}
		all = append(all, field.Error{Field: fmt.Sprintf("ByHandler[%q]", handler), Key: handler, Text: text})
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func values(m map[string]time.Duration) (all []time.Duration) {
	for v := range maps.Values(m) {
		all = append(all, v)
	}
	return all
}

// Off reports whether nothing is ever purged.
func (c *Config) Off() bool { return c.off() && len(c.ByHandler) == 0 }

// WindowOf returns how long completed messages of a consumer are kept; 0: for ever.
func (c *Config) WindowOf(of stores.Consumer) time.Duration {
	return c.window(stores.PurgeCompleted, of)
}

// window returns how long rows of a kind are kept for a consumer.
func (c *Config) window(kind stores.PurgeKind, of stores.Consumer) time.Duration {
	if own, ok := c.ByHandler[of.Handler]; ok && kind == stores.PurgeCompleted {
		return own
	}
	return c.Of(kind)
}

// Errors of a pass. Only announced rows were deleted.
var (
	// ErrClocks: the database's clock and this program's differ, so one of them has jumped.
	ErrClocks = errors.New("retention: the clocks of the database and of this program differ")
	// ErrInFlight: transactions that may not have seen the announcement do not end.
	ErrInFlight = errors.New("retention: transactions from before the announcement do not end")
)
