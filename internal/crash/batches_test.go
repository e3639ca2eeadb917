package crash

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// What breaks in batches is what shares a transaction with others: all that a handler does to
// it, and all that happens to its process. Conducts that would run alone from then on are in
// the other tests.
var batchable = mix{share: map[conduct]int{
	slow: 20, once: 6, flaky: 3, rival: 3, panics: 2, goexits: 2, exits: 1, swallows: 2, defers: 1, cancels: 1, leaks: 1, reenters: 1, permanent: 2, outputs: 1,
}}

// sharing mixes what handlers do in batches on a system.
func (s *system) sharing() mix {
	share := maps.Clone(batchable.share)
	for _, c := range s.dialect.without {
		delete(share, c)
	}
	return mix{share: share}
}

// inBatches lets all handlers share transactions, as soon as two messages are in flight. Their
// time is long: what workers write down and announce takes most of it, and after batches that
// were late the next ones are small.
func inBatches(c *middleware.InboxConfig) {
	c.BatchByHandler = make(map[string]middleware.BatchConfig, len(consumers))
	for _, consumer := range consumers {
		c.BatchByHandler[consumer] = middleware.BatchConfig{Size: 16, From: 2, Time: c.HandlerTimeout}
	}
}

// share has so many messages in flight that batches form: the first four of a handler have
// its places, each alone, and those that wait begin together.
func (tr *trial) share() *trial {
	tr.Batches, tr.Workers, tr.InFlight = true, 2, 40
	return tr
}

// published is a workload in which each message is there once, and each so-many-th twice in a
// row, as from a producer that sends again: what a broker delivers again is a redelivery, which
// shares no transaction.
func published(orders []order, twice int) []order {
	seen := make(map[string]bool)
	var all []order
	for _, o := range orders {
		if seen[o.Payload] {
			continue
		}
		seen[o.Payload] = true
		if all = append(all, o); len(seen)%twice == 0 {
			all = append(all, o)
		}
	}
	return all
}

// Points of a batch.
const (
	pointBatchBegun       = "batch begun" // its claims are won
	pointBatchCommitStart = "batch commit start"
	pointBatchCommit      = "batch commit"     // and goes on meanwhile
	pointBatchCommitEnd   = "batch commit end" // nobody is told
)

var batchPoints = []string{
	pointBatchBegun, pointClaimEnd, pointBetween, pointHandlerEnd, pointCommitStart,
	pointBatchCommitStart, pointBatchCommit, pointBatchCommitEnd, pointCommitEnd, pointDeliveryEnd,
	pointRecordStart, pointRecord, pointRecordEnd, // of members that have left
}

// watchedBatch writes down how a batch ends.
type watchedBatch struct {
	stores.Batch

	recorder *recorder
}

func (w *watchedBatch) Commit(ctx context.Context) error {
	w.recorder.at(ctx, pointBatchCommitStart)
	w.recorder.during(ctx, pointBatchCommit)
	err := w.Batch.Commit(ctx)
	if err == nil {
		w.recorder.at(ctx, pointBatchCommitEnd)
	}
	return err
}

const saidBatch = "batch: "

// BatchEnded implements middleware.BatchHook.
func (r *recorder) BatchEnded(b middleware.BatchEnd) {
	what := saidBatch + "lost"
	switch {
	case b.Lost == nil && b.Kept > 1:
		what = saidBatch + "shared"
	case b.Lost == nil:
		what = saidBatch + "of one"
	}
	ctx := context.WithValue(context.Background(), storyKey{}, story{consumer: b.Consumer.Handler})
	r.say(ctx, what, fmt.Sprintf("%d won, %d not, %d kept, %d failed, %d apart, %d late: %v", b.Size, b.NotWon, b.Kept, b.Failed, b.Apart, b.Late, b.Lost))
}

// mustShare fails a test in which no messages shared a transaction, and which proves nothing.
func (r *result) mustShare(t *testing.T) {
	t.Helper()
	ended := make(map[string]int)
	for _, e := range r.history {
		if how, ok := strings.CutPrefix(e.What, saidBatch); ok {
			ended[how]++
		}
	}
	t.Logf("batches: %v", ended)
	if ended["shared"] == 0 {
		t.Error("no batch was committed with several messages: there is nothing to see")
	}
}

// TestBatches hurts workers whose deliveries share their transactions, in one of two ways on one of
// the stores each day.
func TestBatches(t *testing.T) {
	t.Parallel()
	tests := make(map[string]func(*testing.T))
	for name, open := range map[string]opener{
		"postgres": newFragilePostgres, queuedName: newFragileQueued, "postgres+sql": newFragileSQLDB, "sqlite": newSQLite, "mariadb": newFragileMariaDB, "mysql": newFragileMySQL,
	} {
		tests["points on "+name] = func(t *testing.T) { t.Helper(); killInBatches(t, open, len(tests)) }
		tests["random on "+name] = func(t *testing.T) { t.Helper(); hurtBatches(t, open) }
	}
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(tests))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests[name](t)
		})
	}
}

// killInBatches kills workers at points of a batch, and stops one for longer than the server
// lets a transaction be idle. It has its turn every so many days.
func killInBatches(t *testing.T, open opener, days int) {
	t.Helper()
	seed := seedOf(t)
	kills := killsAt(seed, rotation.TurnEvery(t, days, 4, batchPoints...), 1, 6)
	kills = append(kills, fleet.Kill{Kind: fleet.SIGSTOP, Point: pointBatchCommitStart, Hit: 2, Pause: 3 * time.Second})
	allStrike(t, seed, kills, func(seed uint64) *trial {
		return (&trial{
			system: open(t),
			orders: published(workload(seed, 300, mix{share: map[conduct]int{slow: 10, flaky: 5}}), 5),
			setup:  setup{Redelivered: true, HandlerTimeout: time.Second, CommitTimeout: time.Second},
			Config: fleet.Config{Seed: seed, Duplicates: 0.1, Apart: 30, Reorder: 20},
		}).share()
	})
}

// hurtBatches hurts workers, and where there are some the server and the network.
func hurtBatches(t *testing.T, open opener) {
	t.Helper()
	seed, messages, kills, wanted := seedOf(t), 160, 3, 1
	if soak := rotation.Kills(t); soak > 0 {
		messages, kills, wanted = 4000, 200, soak
	}
	begun := time.Now()
	for killed := 0; killed < wanted; seed++ {
		s := open(t)
		tr := randomTrial(s, seed, messages, kills).share()
		tr.orders = published(workload(seed, messages, s.sharing()), 5)
		tr.Kills = fleet.RandomKills(seed, kills, len(tr.orders)*len(consumers), tr.Workers, fleet.SIGKILL, fleet.SIGKILL, fleet.SIGSTOP, fleet.SIGTERM)
		if s.proxy != nil {
			tr.disturb = outages(s, seed, kills)
			faults := lossy(seed)
			faults.LoseCommitReply, faults.LoseCommitRequest = 0.1, 0.05 // there are few
			s.proxy.SetRandomFaults(faults)
		}
		r := tr.run(t)
		r.must(t)
		r.mustShare(t)
		t.Log(r.summary())
		killed += r.kills()
		t.Logf("%d of %d workers killed after %s", killed, wanted, time.Since(begun).Round(time.Second))
	}
}

// batchVariants break the rules of batches.
var batchVariants = map[string]variant{
	"batch: none broken": {rule: "none", twice: 1, lose: 0.1},
	"batch: unrun committed": {
		rule: "the claims of members that have not run are not committed", find: []string{"I1", "I2", "I3"},
		batch:  func(b *brokenBatch) { b.keepUnrun = true },
		config: hurried, with: []conduct{slow, slow, slow, slow, slow},
	},
	"batch: failed left in": {
		rule: "a member that fails leaves with its effects and its claim", find: []string{"I1", "I2", "rule 6"},
		batch: func(b *brokenBatch) { b.keepFailed = true },
	},
	"batch: unwon acked": {
		rule: "who has not won is not acked before the batch is proven", find: []string{"I2", "I3"},
		twice: 1, batch: func(b *brokenBatch) { b.ackUnwon = true },
	},
	"batch: unproven": {
		rule: "nobody is acked before the batch is proven", find: []string{"I2", "I3"},
		lose: 0.1, batch: func(b *brokenBatch) { b.unproven = true },
	},
}

// hurried leaves members of a batch that do not run.
func hurried(c *middleware.InboxConfig) {
	for consumer, b := range c.BatchByHandler {
		b.Time = 300 * time.Millisecond
		c.BatchByHandler[consumer] = b
	}
}

// TestVariantsOfBatchesAreFound breaks one rule of batches a day.
func TestVariantsOfBatchesAreFound(t *testing.T) {
	t.Parallel()
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(batchVariants))...) {
		all := map[string]opener{"postgres": newFragilePostgres, queuedName: newFragileQueued, "mariadb": newFragileMariaDB, "mysql": newFragileMySQL}
		if batchVariants[name].lose == 0 { // what a network loses
			all["sqlite"] = newSQLite
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, todayEvery(t, len(batchVariants), 1, all), func(t *testing.T, open opener) { findInBatches(t, open, name) })
		})
	}
}

func findInBatches(t *testing.T, open opener, name string) {
	t.Helper()
	v := batchVariants[name]
	v.twice = cmp.Or(v.twice, 5)
	for try := range variantTries {
		tr := variantTrial(open(t), seedOf(t)+uint64(try), name).longer(try).share()
		share := map[conduct]int{slow: 25, once: 8}
		for _, c := range v.with {
			share[c] += 10
		}
		tr.orders = published(workload(tr.Seed, 120, mix{share: share}), v.twice)
		tr.Kills, tr.Duplicates = tr.Kills[:2], 0
		if v.find != nil && v.twice == 1 { // in the same process
			tr.Workers, tr.Kills = 1, nil
		}
		if tr.system.proxy != nil {
			tr.system.proxy.SetRandomFaults(dbproxy.RandomFaults{Seed: tr.Seed, LoseCommitRequest: v.lose})
		}
		if v.find == nil {
			tr.limit = 0 // it comes to rest
		}
		r := tr.run(t)
		if v.find == nil { // or what is found for the others proves nothing
			r.must(t)
			r.mustShare(t)
			return
		}
		t.Logf("%s\nfound %v", r.summary(), r.invariants())
		if slices.ContainsFunc(v.find, func(i string) bool { return slices.Contains(r.invariants(), i) }) {
			return
		}
	}
	t.Errorf("the rule %q was broken and nobody noticed; want a violation of one of %v", v.rule, v.find)
}

// brokenBatch is a store whose batches break a rule.
type brokenBatch struct {
	stores.Store

	keepUnrun, keepFailed, ackUnwon, unproven bool

	mu   sync.Mutex
	open map[string]int // keys in batches
}

func (s *brokenBatch) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	s.mu.Lock()
	twin := s.ackUnwon && s.open[c.Key.String()] > 0
	s.mu.Unlock()
	if twin { // as the batch's own transaction would see it
		return nil, stores.Verdict{Outcome: stores.Duplicate, Fingerprint: c.Fingerprint}, nil
	}
	return s.Store.Begin(ctx, c)
}

func (s *brokenBatch) BatchLimit(concurrent int) int {
	return s.Store.(stores.Batcher).BatchLimit(concurrent) //nolint:forcetypeassert // it is
}

func (s *brokenBatch) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	inner, err := s.Store.(stores.Batcher).BeginBatch(ctx, claims) //nolint:forcetypeassert // it is
	if err != nil {
		return nil, err
	}
	b := &badBatch{Batch: inner, store: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range inner.Members() {
		if m == nil {
			b.members = append(b.members, nil)
			continue
		}
		b.members = append(b.members, &badMember{Member: m, batch: b})
		b.keys = append(b.keys, claims[i].Key.String())
		s.open[claims[i].Key.String()]++
	}
	return b, nil
}

type badBatch struct {
	stores.Batch

	store   *brokenBatch
	members []stores.Member
	keys    []string
}

func (b *badBatch) Members() []stores.Member { return b.members }

func (b *badBatch) Commit(ctx context.Context) error {
	defer b.over()
	for _, m := range b.members {
		if bad, ok := m.(*badMember); ok && b.store.keepUnrun && !bad.ran {
			_ = bad.Member.Keep(ctx)
		}
	}
	err := b.Batch.Commit(ctx)
	if b.store.unproven {
		return nil
	}
	return err
}

func (b *badBatch) Rollback(ctx context.Context) error {
	defer b.over()
	return b.Batch.Rollback(ctx)
}

func (b *badBatch) Cut() {
	defer b.over()
	b.Batch.Cut()
}

func (b *badBatch) over() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, key := range b.keys {
		b.store.open[key]--
	}
	b.keys = nil
}

type badMember struct {
	stores.Member

	batch *badBatch
	ran   bool
}

func (m *badMember) Keep(ctx context.Context) error {
	m.ran = true
	return m.Member.Keep(ctx)
}

func (m *badMember) Leave(ctx context.Context) error {
	m.ran = true
	if m.batch.store.keepFailed {
		return m.Member.Keep(ctx)
	}
	return m.Member.Leave(ctx)
}
