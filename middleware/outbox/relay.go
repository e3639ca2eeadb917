package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

const (
	readLimit = 500      // outputs of one read
	readBytes = 16 << 20 // of their content, roughly

	settleEvery = 25 * time.Millisecond
	settleLimit = 500

	sweepEvery   = time.Second
	sweepShare   = 20 // the pause after a sweep, in multiples of its duration
	longestPause = 30 * time.Second
)

// Relay publishes what committed transactions have written to the outbox. Any number of relays of
// a store share the work.
//
// Publishing happens at least once: if a relay dies before it has recorded a publication, the
// message is published again, with the same UUID. Messages with the same order key are published
// in the order of their commits, each after the destination has accepted the one before.
//
// Its methods are safe for concurrent use, and Poke may be called at any time.
type Relay struct {
	store   stores.Outbox
	config  Config
	desk    *desk
	leases  *holding
	ran     atomic.Bool
	backlog atomic.Pointer[[]stores.OutputCount]
	wake    chan struct{} // full when there is a reason to read
	others  *Waker        // for relays in other processes; nil: they poll

	functions *loglimit.Functions // of the program, that failed
}

// New returns a relay, or all errors of the configuration at once. It does no I/O.
func New(store stores.Outbox, c Config) (*Relay, error) {
	if err := c.validate(store); err != nil {
		return nil, err
	}
	r := &Relay{store: store, config: c, wake: make(chan struct{}, 1), functions: loglimit.NewFunctions(c.Logger)}
	r.leases = newHolding(store, c.LeaseTTL)
	r.desk = newDesk(c.Publishers, r.leases)
	if waker, ok := store.(stores.OutboxWaker); ok && c.WakeInterval > 0 {
		r.others = newWaker(waker, WakerConfig{Interval: c.WakeInterval, Logger: c.Logger}, r.leases.self)
	}
	return r, nil
}

// Poke makes the relay read now, after a commit. Numbers are the numbers of outputs, if known;
// the relay then reads from them on, however long their transaction took. Relays in other
// processes are woken, too, if configured.
func (r *Relay) Poke(numbers ...int64) {
	r.poke(numbers...)
	if r.others != nil && r.leases.shared() {
		r.others.Poke(numbers...)
	}
}

func (r *Relay) poke(numbers ...int64) {
	for _, n := range numbers {
		r.desk.lower(n - 1)
	}
	r.nudge()
}

// flushPause is how often Flush checks whether it is done.
const flushPause = 5 * time.Millisecond

// Flush returns when the relay has published what was committed before the call: the outputs in
// its own buckets that their destinations accept. It is for the end of a program, after its
// handlers have ended and before Run ends. It returns ctx's error if that ends before.
func (r *Relay) Flush(ctx context.Context) error {
	r.poke(1) // read everything
	asked := time.Now()
	for !r.desk.idleSince(asked) {
		if !pause.Sleep(ctx, flushPause) {
			return ctx.Err()
		}
	}
	return nil
}

func (r *Relay) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends. Then it begins nothing more, waits for running calls of
// publishers, at most Config.DrainTimeout, records their results, and gives its leases back.
// While the store does not answer, Run waits and returns no error. It may be called once.
func (r *Relay) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return errors.New("outbox: Relay.Run was called twice")
	}
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	settling, settled := context.WithCancel(working)
	defer settled()

	var reading, publishing, writing, leasing sync.WaitGroup
	leasing.Go(func() { r.keepLeases(settling) })
	writing.Go(func() { r.settle(settling, working) })
	for _, l := range r.desk.lanes {
		publishing.Go(func() { r.work(ctx, working, l) })
	}
	reading.Go(func() { r.read(ctx) })
	if r.others != nil {
		reading.Go(func() { r.listen(ctx, r.others.store) })
	}
	if store, ok := r.store.(stores.OutboxInspector); ok {
		reading.Go(func() { r.watch(ctx, store) })
	}

	<-ctx.Done()
	late := time.AfterFunc(r.config.DrainTimeout, abort)
	defer late.Stop()
	reading.Wait()
	drained := make(chan struct{})
	go func() {
		publishing.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-working.Done(): // do not wait for publishers that ignore their context
	}
	settled()
	writing.Wait()
	leasing.Wait()
	r.leases.giveBack(context.WithoutCancel(ctx), r.desk.busy)
	return nil
}

// keepLeases renews the relay's leases, takes free buckets, and gives up surplus ones.
func (r *Relay) keepLeases(ctx context.Context) {
	failing := false
	for {
		err := r.leases.renew(ctx, r.desk.busy, r.desk.change)
		if err != nil && ctx.Err() == nil && !failing {
			r.config.Logger.WarnContext(ctx, "millpond: outbox: leases cannot be renewed", slog.Any("error", err))
		}
		failing = err != nil
		r.nudge()
		if !pause.Sleep(ctx, r.config.LeaseTTL/4) {
			return
		}
	}
}

// read asks for outputs and hands them out, until ctx ends.
func (r *Relay) read(ctx context.Context) {
	var (
		sweep   = sweeper{next: time.Now()}
		failing time.Duration
	)
	for ctx.Err() == nil {
		now := time.Now()
		var sweeping bool
		q, stale := r.desk.query(now, func(floor int64) (after int64) {
			after, sweeping = sweep.after(now, floor)
			return after
		})
		if len(q.Buckets) == 0 {
			if r.leases.known() {
				r.desk.looked(now, stores.Pending{}, stale)
			}
			r.wait(ctx, r.config.PollInterval)
			continue
		}
		p, err := r.store.Pending(ctx, q)
		if err != nil {
			if failing == 0 && ctx.Err() == nil {
				r.config.Logger.WarnContext(ctx, "millpond: outbox: the store cannot be read", slog.Any("error", err))
			}
			failing = min(max(2*failing, r.config.PollInterval), longestPause)
			pause.Sleep(ctx, pause.Jitter(failing))
			continue
		}
		failing = 0
		for _, name := range r.desk.handOut(p, q, stale) {
			r.config.Logger.ErrorContext(ctx, "millpond: outbox: outputs wait for a destination that this relay has no publisher for",
				slog.String("destination", name), slog.String("add it to", "Config.Publishers"))
		}
		r.desk.looked(now, p, stale)
		if sweeping {
			sweep.went(p, time.Since(now))
		} else {
			r.desk.saw(p.Through, now)
		}
		if !p.More {
			r.wait(ctx, min(r.config.PollInterval, max(time.Until(r.desk.resumes()), 0)))
		}
	}
}

// wait returns after d, when there is a reason to read, or when ctx ends.
func (r *Relay) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.wake:
	case <-ctx.Done():
	}
}

// sweeper reads the whole outbox regularly, regardless of the floor: outputs that were committed
// late may be below it.
type sweeper struct {
	next  time.Time
	at    int64 // how far this one has come
	spent time.Duration
	on    bool
}

func (s *sweeper) after(now time.Time, floor int64) (after int64, sweeping bool) {
	if !s.on && now.Before(s.next) {
		return floor, false
	}
	if !s.on {
		s.on, s.at, s.spent = true, 0, 0
	}
	return min(s.at, floor), true
}

func (s *sweeper) went(p stores.Pending, took time.Duration) {
	s.spent += took
	if n := len(p.Outputs); p.More && n > 0 {
		s.at = p.Outputs[n-1].Number
		return
	}
	s.on, s.next = false, time.Now().Add(max(sweepEvery, sweepShare*s.spent))
}

// work publishes the outputs of one destination, wave by wave, until ctx ends.
func (r *Relay) work(ctx, working context.Context, l *lane) {
	for {
		wave := r.desk.wave(ctx, l)
		if wave == nil {
			return
		}
		r.settleWave(l, wave, r.publish(working, l.publisher, wave))
	}
}

// settleWave notes the result of each message of a wave.
func (r *Relay) settleWave(l *lane, wave []*item, errs []error) {
	var (
		away   error
		back   []*item
		logged bool

		published, refusals, failed int
	)
	for i, it := range wave {
		switch err := errs[i]; {
		case err == nil:
			r.desk.published(l, it)
			published++
		case errors.Is(err, errMayNot):
			r.desk.drop(l, it)
		case r.isAway(err):
			away, back = err, append(back, it)
		default:
			refused := stores.RefusedOutput{Number: it.Number, CreatedAt: it.CreatedAt, Attempts: it.Attempts + 1, Error: err.Error()}
			refused.Failed = refused.Attempts >= r.config.MaxAttempts || isFinal(err)
			if refused.Failed {
				failed++
			} else {
				refusals++
			}
			refused.Blocks = refused.Failed && r.config.BlockKeys && it.OrderKey != nil
			if refused.Failed || !logged {
				logged = !refused.Failed
				r.config.Logger.Log(context.Background(), level(refused.Failed), "millpond: outbox: a destination refuses a message", slog.String("destination", it.Destination),
					slog.String("topic", it.Topic), slog.String("message", it.ID), slog.Int64("number", it.Number),
					slog.Int("attempts", refused.Attempts), slog.Bool("for good", refused.Failed), slog.Any("error", err))
			}
			r.desk.refused(l, it, refused, backoff(r.config.Backoff, refused.Attempts))
		}
	}
	r.tell(func(h Hook) { h.Relayed(l.name, published, refusals, failed) })
	if first, until := r.desk.went(l, published+refusals+failed > 0, away, back); first {
		r.config.Logger.Warn("millpond: outbox: a destination is away and pauses", slog.String("destination", l.name),
			slog.Duration("for", time.Until(until)), slog.Any("error", away))
	}
}

// isAway asks the program's function; a panic means false.
func (r *Relay) isAway(err error) (away bool) {
	return r.apart("Config.Away", func() error {
		away = r.config.Away(err)
		return nil
	}) && away
}

// apart calls a function of the program, whose panic or runtime.Goexit must not end the relay's
// goroutine. It reports false, and logs, if the function did not return.
func (r *Relay) apart(name string, f func() error) bool {
	err := callback.Apart(name, f)
	if err != nil {
		r.functions.Failed(name, slog.Any("error", err))
	}
	return err == nil
}

func level(failed bool) slog.Level {
	if failed {
		return slog.LevelError
	}
	return slog.LevelWarn
}

const longestBackoff = 5 * time.Minute

func backoff(first time.Duration, attempts int) time.Duration {
	d := first
	for range attempts - 1 {
		if d = 2 * d; d >= longestBackoff {
			return pause.Jitter(longestBackoff)
		}
	}
	return pause.Jitter(d)
}

// settle records what was published and refused, until ctx ends and all is recorded.
func (r *Relay) settle(ctx, working context.Context) {
	for {
		ended := false
		timer := time.NewTimer(settleEvery)
		select {
		case <-timer.C:
		case <-r.desk.done.many:
		case <-ctx.Done():
			ended = true
		}
		timer.Stop()
		for {
			done := r.desk.results(settleLimit)
			if len(done) == 0 {
				break
			}
			if !r.settleAll(working, done) {
				return
			}
			r.desk.settled(done)
			r.nudge()
		}
		if ended {
			return
		}
	}
}

func (r *Relay) settleAll(ctx context.Context, done []*item) bool {
	s := stores.Settlement{Keep: r.config.Keep}
	for _, it := range done {
		if it.refusal == nil {
			s.Published, s.CreatedAt = append(s.Published, it.Number), append(s.CreatedAt, it.CreatedAt)
		} else {
			s.Refused = append(s.Refused, *it.refusal)
		}
	}
	for wait := time.Duration(0); ; {
		err := r.store.Settle(ctx, s)
		if err == nil {
			return true
		}
		if wait == 0 && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "millpond: outbox: the relay cannot record what was published", slog.Any("error", err))
		}
		wait = min(max(2*wait, settleEvery), longestPause)
		if !pause.Sleep(ctx, pause.Jitter(wait)) {
			return false
		}
	}
}
