package router

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// roomFor is for how many handlers a pool has room that the service has chosen the size of:
// it is opened before they are known. It opens no connection that nobody needs.
const roomFor = 10

// makeRoom opens the store again, with room for the handlers, if its pool has less and the
// URL does not say how many connections it may open.
func (s *Service) makeRoom(ctx context.Context) error {
	pool := s.store.Capabilities().Pool
	u, err := url.Parse(s.config.Store.URL.Reveal())
	if err != nil || !strings.HasPrefix(pool.Raise, pool.Setting+"=%d") || u.Query().Has(pool.Setting) {
		return nil //nolint:nilerr // it was opened: it has no parameters to add one to
	}
	most := s.config.Broker.InFlight
	for name := range s.config.Handlers {
		most = max(most, s.config.inFlightOf(name))
	}
	room := roomFor*(most+s.retries()) + 1
	if pool.Max == 0 || pool.Max >= room {
		return nil
	}
	u.RawQuery = strings.TrimPrefix(fmt.Sprintf("%s&%s=%d", u.RawQuery, pool.Setting, room), "&")
	store, err := s.config.Program.Stores.Open(ctx, u.String())
	if err != nil {
		return err
	}
	small := s.store
	s.store, s.roomy = store, true
	return small.Close()
}

// retries is how many parked messages of one handler may be run again at a time.
func (s *Service) retries() int {
	if s.config.RetryWorker.Off {
		return 0
	}
	return s.config.RetryWorker.Concurrency
}

// fitPool compares the connections that deliveries in flight and retries may hold with
// those that the store may open.
func (s *Service) fitPool(bad func(format string, args ...any)) {
	pool := s.store.Capabilities().Pool
	if pool.Max == 0 {
		return
	}
	need := 1 // for what runs beside the handlers
	var parts []string
	for _, h := range s.handlers {
		inFlight := s.config.inFlightOf(h.name)
		need += inFlight + s.retries()
		part := fmt.Sprintf("%d in flight", inFlight)
		if n := s.retries(); n > 0 {
			part += fmt.Sprintf(" + %d retries", n)
		}
		parts = append(parts, fmt.Sprintf("%s of handler %q", part, h.name))
	}
	if need > pool.Max {
		bad("%s allows %d connections (%s), and %d may be needed: %s + 1: write %s, or lower broker.in_flight or retry_worker.concurrency",
			s.config.named("store.url"), pool.Max, pool.Setting, need, strings.Join(parts, " + "), fmt.Sprintf(pool.Raise, need))
	}
	if s.roomy {
		s.log.Info("millpond: store.url does not say how many connections the store may open, so it may open as many as the handlers need",
			slog.Int("needed", need), slog.String("setting", pool.Setting), slog.Int("most", pool.Max))
	}
}
