package retention

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Sweeper purges rows that are older than their windows. Of all processes with a sweeper, one
// purges.
type Sweeper struct {
	store  Store
	config Config
	owner  string
	kept   map[string]string // why rows were kept, as logged last
	ran    atomic.Bool

	mu    sync.Mutex // passes may run at the same time
	paces map[stores.Consumer]pace
}

// pace has the time since a consumer's last announcement.
type pace struct {
	announced time.Time     // by the database's clock
	before    time.Duration // the time that had passed when this process first saw it
	seen      time.Time
}

// since returns how long ago the consumer's last announcement was. Until this process has seen
// it, the database's clock counts; after that this process's monotonic clock, which nobody sets.
func (s *Sweeper) since(m *stores.Watermark, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.paces[m.Consumer]
	if !known || !p.announced.Equal(m.AnnouncedAt) {
		passed := max(now.Sub(m.AnnouncedAt), 0)
		if known {
			passed = min(passed, time.Since(p.seen))
		}
		p = pace{m.AnnouncedAt, passed, time.Now()}
		s.paces[m.Consumer] = p
	}
	return p.before + time.Since(p.seen)
}

// New returns a sweeper on the store, or all errors of the configuration at once. It does no I/O.
func New(store Store, c Config) (*Sweeper, error) {
	err := c.Validate()
	if store == nil {
		err = errors.Join(errors.New("the store is nil"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("retention: New: %w", err)
	}
	field.SetDefaults(&c)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = callback.Logger(c.Logger)
	return &Sweeper{store: store, config: c, owner: rand.Text(), kept: make(map[string]string), paces: make(map[stores.Consumer]pace)}, nil
}

// Run sweeps until ctx ends, while this process has the lease. It then returns nil. It may be
// called once.
func (s *Sweeper) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("retention: Sweeper.Run was called twice")
	}
	if s.config.Off() {
		s.config.Logger.Info("millpond: nothing is purged, so the tables grow for ever; see docs/retention.md", slog.String("service", s.config.Service))
		<-ctx.Done()
		return nil
	}
	defer s.unlease(ctx)
	for {
		mine, err := s.lease(ctx)
		if err == nil && mine {
			err = s.sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.config.Logger.ErrorContext(ctx, "millpond: retention: the purge failed, and is tried again", slog.Duration("in", s.config.Every), slog.Any("error", err))
		}
		if !s.wait(ctx, mine) {
			return nil
		}
	}
}

// wait waits for the next pass. The owner renews its lease meanwhile.
func (s *Sweeper) wait(ctx context.Context, mine bool) bool {
	for until := time.Now().Add(pause.Jitter(s.config.Every)); ; {
		left := time.Until(until)
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !pause.Sleep(ctx, min(left, ttl/3)) {
			return false
		}
		if mine {
			mine, _ = s.lease(ctx) // the next pass tries again
		}
	}
}

var errNotOwner = errors.New("retention: another process purges")

func (s *Sweeper) sweep(ctx context.Context) error {
	o, begun := Options{}, time.Now()
	renewed := begun
	o.keep = func(ctx context.Context) error {
		if time.Since(renewed) < ttl/3 {
			return nil
		}
		mine, err := s.lease(ctx)
		if err == nil && !mine {
			err = errNotOwner
		}
		renewed = time.Now()
		return err
	}
	result, err := s.Pass(ctx, o)
	for _, r := range result.Found {
		if r.Kept != "" && r.newest.IsZero() {
			continue // it has no rows
		}
		if of := string(r.Kind) + " " + r.Consumer.String(); s.kept[of] != r.Kept {
			s.kept[of] = r.Kept
			s.config.Logger.InfoContext(ctx, "millpond: retention: the reason for keeping rows has changed", slog.String("kind", string(r.Kind)),
				slog.String("consumer", r.Consumer.String()), slog.String("because", r.Kept))
		}
	}
	for kind, n := range result.Deleted {
		if n > 0 {
			s.config.Logger.InfoContext(ctx, "millpond: retention: rows are purged", slog.String("kind", string(kind)), slog.Int("rows", n), slog.Duration("took", time.Since(begun)))
		}
	}
	return err
}

func (s *Sweeper) lease(ctx context.Context) (mine bool, err error) {
	leased, err := s.store.Lease(ctx, stores.LeaseRequest{Name: leases + s.config.Service, Owner: s.owner, Units: []int64{0}, Limit: 1, TTL: ttl})
	return len(leased.Units) == 1, err
}

func (s *Sweeper) unlease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	_ = s.store.Unlease(ctx, leases+s.config.Service, s.owner, []int64{0}) // else it expires
}
