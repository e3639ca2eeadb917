package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	// checkTimeout bounds one check, so that what hangs fails instead.
	checkTimeout = 90 * time.Second
	// patience bounds one step that other processes or the server have a part in.
	patience = 20 * time.Second
	// promptly is what an answer may take that must not wait for another delivery.
	// Stores with a busy timeout are opened with a shorter one.
	promptly = 5 * time.Second
)

// bench is what one check works with: a migrated database of its own.
type bench struct {
	tb     testing.TB
	h      *Harness
	db     *Database
	strict bool // transactions may fail to serialize
	keys   keysOfOutputs
	ctx    context.Context
}

// newBench prepares the suite's own tables; millpond's come with the first store.
func newBench(tb testing.TB, h *Harness, db *Database) *bench {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), checkTimeout)
	tb.Cleanup(cancel)
	b := &bench{tb: tb, h: h, db: db, ctx: ctx}
	b.exec("CREATE TABLE " + EffectTable + " (effect_key VARCHAR(200) NOT NULL, label VARCHAR(50) NOT NULL, run INTEGER NOT NULL)")
	b.exec("CREATE TABLE " + TakenTable + " (id VARCHAR(50) NOT NULL PRIMARY KEY)")
	b.exec("INSERT INTO " + TakenTable + " (id) VALUES ('taken')")
	return b
}

func (b *bench) exec(statement string) {
	b.tb.Helper()
	if _, err := b.db.Admin.ExecContext(b.ctx, statement); err != nil {
		b.tb.Fatalf("storetest: %s: %v", statement, err)
	}
}

// clear forgets all messages, so that reading the committed state stays cheap.
func (b *bench) clear() {
	b.tb.Helper()
	tx, err := b.db.Admin.BeginTx(b.ctx, nil)
	if err != nil {
		b.tb.Fatalf("storetest: %v", err)
	}
	defer tx.Rollback()
	tables := []string{"millpond_inbox", "millpond_failure", "millpond_quarantine", EffectTable}
	if b.h.Transact != nil {
		tables = append(tables, "millpond_outbox")
	}
	for _, table := range tables {
		if _, err := tx.ExecContext(b.ctx, "DELETE FROM "+table); err != nil {
			b.tb.Fatalf("storetest: %v", err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.tb.Fatalf("storetest: %v", err)
	}
}

// openOnly opens a store that is neither migrated nor knows a consumer.
func (b *bench) openOnly() stores.Store {
	b.tb.Helper()
	store := b.db.Open(b.tb)
	b.tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.tb.Errorf("Close: %v", err)
		}
	})
	return store
}

// open opens a migrated store that knows the consumer of the suite.
func (b *bench) open() stores.Store {
	b.tb.Helper()
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	b.register(store, consumer)
	return store
}

var (
	consumer = stores.Consumer{Service: "storetest", Handler: "handler"}
	another  = stores.Consumer{Service: "storetest", Handler: "another handler"}
)

const topic = "storetest topic"

func (b *bench) register(store stores.Store, c stores.Consumer) {
	b.tb.Helper()
	if err := store.Register(b.ctx, stores.Registration{Consumer: c, Topic: topic}); err != nil {
		b.tb.Fatalf("Register(%s): %v", c, err)
	}
	b.keys.none = store.Capabilities().OutputsUnordered
}

// claimFor returns the claim of a message with that id and payload.
func claimFor(id, payload string) stores.Claim {
	return stores.Claim{
		Key:         stores.Key{Consumer: consumer, ID: []byte(id)},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(payload)),
		Bound:       checkTimeout,
	}
}

// begin asks the store, and fails if it cannot decide.
func (b *bench) begin(store stores.Inbox, c stores.Claim) (stores.Attempt, stores.Verdict) {
	b.tb.Helper()
	attempt, verdict, err := store.Begin(b.ctx, c)
	if err != nil {
		b.tb.Fatalf("Begin(%s): %v", c.Key, err)
	}
	if (attempt != nil) != (verdict.Outcome == stores.Claimed) {
		b.tb.Fatalf("Begin(%s) = attempt %v with outcome %s: an attempt comes with claimed, and only with it", c.Key, attempt, verdict.Outcome)
	}
	return attempt, verdict
}

// noAttempt fails if an error came with an attempt, which it ends.
func (b *bench) noAttempt(attempt stores.Attempt) {
	b.tb.Helper()
	if attempt != nil {
		b.tb.Errorf("Begin returned an attempt, want none")
		_ = attempt.Rollback(b.ctx)
	}
}

// win begins an attempt that nothing stands in the way of.
func (b *bench) win(store stores.Inbox, c stores.Claim) stores.Attempt {
	b.tb.Helper()
	attempt, verdict := b.begin(store, c)
	if verdict.Outcome != stores.Claimed {
		b.tb.Fatalf("Begin(%s) = %s, want claimed", c.Key, verdict.Outcome)
	}
	return attempt
}

// expect asks for an outcome other than claimed, and looks too if Look can see it.
func (b *bench) expect(store stores.Store, c stores.Claim, want stores.Outcome) stores.Verdict {
	b.tb.Helper()
	attempt, verdict := b.begin(store, c)
	if attempt != nil {
		b.rollback(attempt)
	}
	if verdict.Outcome != want {
		b.tb.Errorf("Begin(%s) = %s, want %s", c.Key, verdict.Outcome, want)
	}
	if want != stores.InFlight && want != stores.Behind && want != stores.Stale {
		b.sameVerdict(verdict, b.look(store, c, want), c.Key)
	}
	return verdict
}

// look looks at the row of the claim's key.
func (b *bench) look(store stores.Failures, c stores.Claim, want stores.Outcome) stores.Verdict {
	b.tb.Helper()
	verdict, err := store.Look(b.ctx, c.Key, c.Fingerprint)
	if err != nil {
		b.tb.Fatalf("Look(%s): %v", c.Key, err)
	}
	if verdict.Outcome != want {
		b.tb.Errorf("Look(%s) = %s, want %s", c.Key, verdict.Outcome, want)
	}
	return verdict
}

// sameVerdict fails unless Begin and Look say the same, but for the time between them.
func (b *bench) sameVerdict(begin, look stores.Verdict, k stores.Key) {
	b.tb.Helper()
	for _, v := range []*stores.Verdict{&begin, &look} {
		v.CompletedAt = v.CompletedAt.UTC()
		v.Failure.Age, v.Failure.DueIn, v.Server = 0, 0, 0
	}
	if begin != look {
		b.tb.Errorf("%s: Begin = %+v and Look = %+v, want the same", k, begin, look)
	}
}

// write writes an effect that must succeed.
func (b *bench) write(attempt stores.Attempt, e Effect) {
	b.tb.Helper()
	if err := b.h.Write(attempt.Context(b.ctx), e); err != nil {
		b.tb.Fatalf("Write(%v): %v", e, err)
	}
}

func (b *bench) commit(attempt stores.Attempt) {
	b.tb.Helper()
	if err := attempt.Commit(b.ctx); err != nil {
		b.tb.Fatalf("Commit: %v", err)
	}
}

func (b *bench) rollback(attempt stores.Attempt) {
	b.tb.Helper()
	if err := attempt.Rollback(b.ctx); err != nil {
		b.tb.Errorf("Rollback: %v", err)
	}
}

// complete completes the key with one effect, both under the id as effect key.
func (b *bench) complete(store stores.Inbox, c stores.Claim) {
	b.tb.Helper()
	attempt := b.win(store, c)
	b.write(attempt, Effect{Key: string(c.Key.ID), Label: "first", Run: 1})
	b.commit(attempt)
}

// wantErr fails unless err wraps one of targets.
func wantErr(tb testing.TB, what string, err error, targets ...error) {
	tb.Helper()
	if !isAny(err, targets) {
		tb.Errorf("%s = %v, want an error that wraps %q", what, err, targets)
	}
}

func isAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// poll asks until done, with growing pauses. It reports false if that takes too long.
func poll(ctx context.Context, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := time.Millisecond; !done(); pause = min(2*pause, 50*time.Millisecond) {
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return done()
		}
	}
	return true
}

// retry calls f until it says something else than ErrUnavailable, which a store may
// say while other processes keep its database busy. It returns the last error.
func (b *bench) retry(f func() error) (err error) {
	poll(b.ctx, patience, func() bool {
		err = f()
		return !errors.Is(err, stores.ErrUnavailable)
	})
	return err
}

// within runs f and fails if it does not return in time.
func (b *bench) within(limit time.Duration, what string, f func()) {
	b.tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		b.tb.Fatalf("%s has not returned within %s", what, limit)
	}
}
