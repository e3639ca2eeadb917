package router

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// roomFor is the number of handlers for which the service sizes the pool, if it chooses the size:
// the pool is opened before the handlers are known. A pool opens only connections that are used.
const roomFor = 10

// makeRoom opens the store again with a larger pool, if the pool is too small and the URL
// does not set its size.
func (w *wiring) makeRoom(ctx context.Context) error {
	pool := w.store.Capabilities().Pool
	u, err := url.Parse(w.config.Store.URL.Reveal())
	if err != nil || !strings.HasPrefix(pool.Raise, pool.Setting+"=%d") || u.Query().Has(pool.Setting) {
		return nil //nolint:nilerr // the store was opened with it, so it is a URL without parameters
	}
	most := w.config.Broker.InFlight
	for name := range w.config.Handlers {
		most = max(most, w.config.inFlightOf(name))
	}
	room := roomFor*(most+w.retries()) + w.relays() + 1
	if pool.Max == 0 || pool.Max >= room {
		return nil
	}
	u.RawQuery = strings.TrimPrefix(fmt.Sprintf("%s&%s=%d", u.RawQuery, pool.Setting, room), "&")
	store, err := w.config.Program.Stores.Open(ctx, u.String())
	if err != nil {
		return err
	}
	small := w.store
	w.store, w.roomy = store, true
	return small.Close()
}

// retries returns how many parked messages of one handler may be retried at a time.
func (w *wiring) retries() int {
	if w.config.RetryWorker.Off {
		return 0
	}
	return w.config.RetryWorker.Concurrency
}

// relays returns how many connections a relay takes.
func (w *wiring) relays() int {
	if w.config.Relay.On {
		return relayConnections
	}
	return 0
}

// pool checks that the store may open the connections that deliveries in flight and retries
// need.
func (f *fitting) pool() {
	pool := f.store.Capabilities().Pool
	if pool.Max == 0 {
		return
	}
	need := 1 // for the checks of /readyz
	var parts []string
	for _, h := range f.handlers {
		inFlight := f.config.inFlightOf(h.name)
		need += inFlight + f.retries()
		part := fmt.Sprintf("%d in flight", inFlight)
		if n := f.retries(); n > 0 {
			part += fmt.Sprintf(" + %d retries", n)
		}
		parts = append(parts, fmt.Sprintf("%s of handler %q", part, h.name))
	}
	if n := f.relays(); n > 0 {
		need += n
		parts = append(parts, fmt.Sprintf("%d of the relay", n))
	}
	if need > pool.Max {
		f.badf("%s allows %d connections (%s), and %d may be needed: %s + 1: write %s, or lower broker.in_flight or retry_worker.concurrency",
			f.config.named("store.url"), pool.Max, pool.Setting, need, strings.Join(parts, " + "), fmt.Sprintf(pool.Raise, need))
	}
	if f.roomy {
		f.log.Info("millpond: store.url does not set the size of the connection pool, so the service chose it",
			slog.Int("needed", need), slog.String("setting", pool.Setting), slog.Int("most", pool.Max))
	}
}
