package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Options are the options of one pass.
type Options struct {
	DryRun bool
	// Silent also purges consumers that have completed nothing recently, because they are
	// retired.
	Silent bool
	// Handler is the only handler that is swept; "": all.
	Handler string
	// Progress, if not nil, is called after each range, with the number of rows that were read or
	// deleted.
	Progress func(kind stores.PurgeKind, rows int, deleting bool)

	keep func(context.Context) error
}

// Report describes the rows of one kind and consumer.
type Report struct {
	Kind      stores.PurgeKind
	Consumer  stores.Consumer // zero for kinds that belong to none
	Before    time.Time       // rows up to this time may be purged
	Rows      int             // rows that were read
	Purgeable int
	Through   time.Time // the newest row that may be purged
	Kept      string    // why no rows are purged, or not all that are old enough

	newest, left, recent, after time.Time // as in stores.PurgeFound
	forgotten                   time.Time // rows up to this time were purged
}

// Result is the result of one pass.
type Result struct {
	Found   []Report
	Deleted map[stores.PurgeKind]int
}

// Pass sweeps once: it looks, announces, waits and deletes. After an error, the result has what
// was done so far.
func (s *Sweeper) Pass(ctx context.Context, o Options) (Result, error) {
	w, err := s.store.Watermarks(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("retention: %w", err)
	}
	if apart := time.Since(w.Now); apart.Abs() > clocks {
		return Result{}, fmt.Errorf("%w by %s: nothing is purged until they agree", ErrClocks, apart.Abs().Round(time.Second))
	}
	p := &pass{Sweeper: s, Options: o, now: w.Now, deleted: make(map[stores.PurgeKind]int)}
	p.limit(w)
	for _, step := range []func(context.Context) error{p.survey, p.announce, p.purge} {
		if err := step(ctx); err != nil {
			return p.answer(), fmt.Errorf("retention: %w", err)
		}
	}
	return p.answer(), nil
}

// pass is a running pass. All times are the database's.
type pass struct {
	*Sweeper
	Options

	now     time.Time
	reports []*Report
	deleted map[stores.PurgeKind]int
}

func (p *pass) answer() Result {
	r := Result{Deleted: p.deleted}
	for _, found := range p.reports {
		r.Found = append(r.Found, *found)
	}
	return r
}

// limit decides up to which time rows may be purged.
func (p *pass) limit(w stores.Watermarks) {
	for _, kind := range stores.PurgeKinds() {
		if kind == stores.PurgePublished || kind == stores.PurgeAudited {
			if window := p.config.Of(kind); window > 0 && p.Handler == "" {
				p.reports = append(p.reports, &Report{Kind: kind, Before: p.now.Add(-window)})
			}
			continue
		}
		for _, m := range w.Consumers {
			window := p.config.window(kind, m.Consumer)
			if window <= 0 || m.Consumer.Service != p.config.Service || p.Handler != "" && m.Consumer.Handler != p.Handler {
				continue
			}
			r := &Report{Kind: kind, Consumer: m.Consumer, Before: p.now.Add(-window)}
			if kind.Forgets() {
				p.slow(r, &m)
			}
			p.reports = append(p.reports, r)
		}
		if window := p.config.Of(kind); kind == stores.PurgeQuarantined && window > 0 && p.Handler == "" { // some have no consumer
			p.reports = append(p.reports, &Report{Kind: kind, Before: p.now.Add(-window)})
		}
	}
}

// slow lowers the limit to what may be purged by now, even if a clock jumps.
func (p *pass) slow(r *Report, m *stores.Watermark) {
	if p.now.Sub(m.LateAt) < silence+slack && m.LateTime.Before(r.Before) {
		r.Before, r.Kept = m.LateTime, "the broker has recently delivered messages of that age"
	}
	if m.PurgedThrough.IsZero() {
		return
	}
	r.forgotten = m.PurgedThrough.Add(-stores.ClockMargin)
	if fastest := r.forgotten.Add(2 * p.since(m, p.now)); fastest.Before(r.Before) {
		r.Before, r.Kept = fastest, "a purge may advance by twice the time since the one before"
	}
}

func (p *pass) of(kind stores.PurgeKind) (limits []stores.PurgeLimit) {
	for _, r := range p.reports {
		if r.Kind == kind && !r.Before.IsZero() {
			limits = append(limits, stores.PurgeLimit{Consumer: r.Consumer, Before: r.Before})
		}
	}
	return limits
}

func (p *pass) report(kind stores.PurgeKind, of stores.Consumer) *Report {
	for _, r := range p.reports {
		if r.Kind == kind && r.Consumer == of {
			return r
		}
	}
	return &Report{}
}

// ranges goes through all rows of a kind, in bounded ranges.
func (p *pass) ranges(ctx context.Context, kind stores.PurgeKind, call func(context.Context, stores.PurgeQuery) (stores.PurgeRange, error), each func(stores.PurgeRange)) error {
	q := stores.PurgeQuery{Kind: kind, Limits: p.of(kind), Rows: batch, Recent: p.now.Add(-silence)}
	if p.config.Archive != nil {
		q.Archive = func(rows []stores.PurgedRow) error {
			return callback.Call("Config.Archive", func() error { return p.config.Archive(ctx, rows) })
		}
	}
	for more := len(q.Limits) > 0; more; more = q.After != "" {
		begun := time.Now()
		found, err := call(ctx, q)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		q.After = found.Next
		each(found)
		if p.keep != nil {
			if err := p.keep(ctx); err != nil {
				return err
			}
		}
		// The purge leaves half of the time to others, whatever the rows.
		rest := max(time.Since(begun), time.Duration(found.Deleted)*time.Second/time.Duration(p.config.Rate)-time.Since(begun))
		if !pause.Sleep(ctx, rest) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// survey reads all rows, and deletes none.
func (p *pass) survey(ctx context.Context) error {
	for _, kind := range stores.PurgeKinds() {
		err := p.ranges(ctx, kind, p.store.Survey, func(found stores.PurgeRange) {
			for _, f := range found.Found {
				r := p.report(kind, f.Consumer)
				r.Rows, r.Purgeable = r.Rows+f.Rows, r.Purgeable+f.Purgeable
				r.Through, r.newest, r.recent = later(r.Through, f.Through), later(r.newest, f.Newest), later(r.recent, f.Before)
				r.left, r.after = earlier(r.left, f.Left), earlier(r.after, f.After)
			}
			p.progress(kind, p.looked(kind), false)
		})
		if err != nil {
			return err
		}
	}
	for _, r := range p.reports {
		if why := p.silentSince(r.Consumer); r.Kind.Forgets() && why != "" && !p.Silent {
			r.Kept, r.Before, r.Purgeable, r.Through = why, time.Time{}, 0, time.Time{}
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (p *pass) progress(kind stores.PurgeKind, rows int, deleting bool) {
	if p.Progress != nil {
		p.Progress(kind, rows, deleting)
	}
}

func (p *pass) looked(kind stores.PurgeKind) (rows int) {
	for _, r := range p.reports {
		if r.Kind == kind {
			rows += r.Rows
		}
	}
	return rows
}

// silentSince returns why a consumer that stands still, or recently did, keeps its rows: messages
// that were in flight or waiting may be older than the window when they come.
func (p *pass) silentSince(c stores.Consumer) string {
	r := p.report(stores.PurgeCompleted, c)
	switch {
	case r.Consumer != c:
		return "" // only failed messages are purged
	case r.newest.Before(p.now.Add(-silence)):
		return "it has completed nothing for a day: if it is retired, use millpond purge --silent"
	case r.after.Sub(later(r.recent, r.forgotten)) > silence+slack:
		return "it had completed nothing for a day until recently"
	case r.Purgeable > 0 && r.left.Sub(r.Through) > silence+slack: // rows may be newer than they look, if a clock has jumped
		return "it completed nothing for a day or more after the rows that are old enough, or the clock jumped"
	}
	return ""
}

// announce announces what is about to be purged, each consumer in a commit of its own, and waits
// until all transactions have ended that may not have seen it.
func (p *pass) announce(ctx context.Context) error {
	through := make(map[stores.Consumer]time.Time)
	for _, r := range p.reports {
		if r.Kind.Forgets() && r.Purgeable > 0 {
			through[r.Consumer] = later(through[r.Consumer], r.Through)
		}
	}
	if p.DryRun || len(through) == 0 {
		return nil
	}
	for consumer, at := range through {
		if err := p.store.Announce(ctx, consumer, at); err != nil {
			return err
		}
	}
	if !pause.Sleep(ctx, settle) {
		return context.Cause(ctx)
	}
	mark, begun := "", time.Now()
	for {
		next, over, err := p.store.Overtaken(ctx, mark)
		switch {
		case err != nil || over:
			return err
		case time.Since(begun) > longest:
			return fmt.Errorf("%w: for %s", ErrInFlight, longest)
		}
		mark = next
		if p.keep != nil {
			if err := p.keep(ctx); err != nil {
				return err
			}
		}
		if !pause.Sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

func (p *pass) purge(ctx context.Context) error {
	for _, kind := range stores.PurgeKinds() {
		if p.DryRun || !p.has(kind) {
			continue
		}
		err := p.ranges(ctx, kind, p.store.Purge, func(found stores.PurgeRange) {
			p.deleted[kind] += found.Deleted
			p.progress(kind, p.deleted[kind], true)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// has reports whether rows of a kind may be purged.
func (p *pass) has(kind stores.PurgeKind) bool {
	for _, r := range p.reports {
		if r.Kind == kind && r.Purgeable > 0 {
			return true
		}
	}
	return false
}
