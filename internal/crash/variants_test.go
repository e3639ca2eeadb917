package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// variant breaks one rule of the design. The zero variant breaks none.
type variant struct {
	rule   string
	system []string // the stores on which the rule can be broken; nil: all
	find   []string // the invariants of which one must be found violated

	store    func(b *backend) middleware.Store
	batch    func(*brokenBatch)
	loses    bool                              // what comes of it is seen where the server loses its last commits
	twice    int                               // each so-many-th message comes twice; 0: some
	lose     float64                           // COMMITs of batches, and both ways more than others do
	operates func(b *backend) stores.Inspector // of operators, who are there with it alone
	config   func(*middleware.InboxConfig)
	around   func(message.HandlerMiddleware) message.HandlerMiddleware
	split    bool      // each consumer has an inbox of its own
	inSQL    bool      // what comes of it depends on the database
	rests    bool      // it comes to rest, so that a slow machine has more time for it
	shares   bool      // two messages use one connection at once, which the race detector says too
	with     []conduct // of handlers, that bring it to light; the more often named, the more of them
	stopAt   []string  // points where holders of leases are stopped, so that they lose them
}

// servers are the stores with a server, and a network on the way to it.
var servers = []string{"postgres", "postgres+sql", "lib/pq", "pgbouncer", "mariadb", "mysql"}

// variants, by name. Each is one way in which an inbox may be wrong; how it is wrong
// stays here.
var variants = map[string]variant{
	"": {rule: "none", with: []conduct{commits, defers, swallows, settings, echoes, sealed, unkept, bulky}},
	"ack first": {
		rule: "ack never precedes commit", find: []string{"I2", "I3"},
		around: ackFirst,
	},
	"claim apart": {
		rule: "claim and effects commit together", find: []string{"I1"},
		inSQL: true,
		store: func(b *backend) middleware.Store { return &claimApart{b.store, b} },
	},
	"check then act": {
		rule: "the claim is one atomic decision", find: []string{"I1"}, with: []conduct{slow, slow, slow, slow},
		inSQL: true,
		store: func(b *backend) middleware.Store { return &checkThenAct{b.store, b} },
	},
	"unproven": {
		rule: "a commit needs proof", find: []string{"I2", "I3"}, with: []conduct{commits, defers},
		inSQL: true,
		store: func(b *backend) middleware.Store { return unproven{b.store} },
	},
	"no tag": {
		rule: "COMMIT without an error is no proof", system: servers, find: []string{"I12"}, with: []conduct{swallows, replaces},
		inSQL: true,
		store: func(b *backend) middleware.Store { return &noTag{b.store, b} },
	},
	"run again": {
		rule: "an unknown commit is not a failed one", system: servers, find: []string{"I1"},
		inSQL: true,
		store: func(b *backend) middleware.Store { return &runAgain{Store: b.store, b: b} },
	},
	"no fingerprint": {
		rule: "another message under a used id is kept", find: []string{"I6"},
		config: func(c *middleware.InboxConfig) { c.Fingerprint.Off = true },
	},
	"one consumer": {
		rule: "consumers are counted apart", find: []string{"I11"},
		config: func(c *middleware.InboxConfig) { c.Handler, c.AcceptTopics = "both", true }, split: true,
	},
	"attempts forgotten": {
		rule: "a handler's rollback does not undo the count", find: []string{"rule 6"}, with: []conduct{hopeless},
		store: func(b *backend) middleware.Store { return forgetful{b.store} },
	},
	"over completed": {
		rule: "a failure is never recorded over a completed row", find: []string{"I1"}, with: []conduct{once, once, once, once},
		inSQL: true,
		store: func(b *backend) middleware.Store { return overCompleted{b.store, b} },
	},
	"local clock": {
		rule: "what is due is due by the database's clock", find: []string{"rule 12"}, with: []conduct{once},
		store: func(b *backend) middleware.Store { return localClock{b.store, b.worker} },
	},
	"facts forgotten": {
		rule: "every run gets the message as it arrived", find: []string{"rule 14"}, with: []conduct{once},
		store: func(b *backend) middleware.Store { return keyForgotten{b.store} },
	},
	"reservation counted": {
		rule: "only what has begun counts", find: []string{"rule 6"}, with: []conduct{hopeless},
		store: func(b *backend) middleware.Store { return reservationCounted{b.store} },
	},
	"break unwritten": {
		rule: "an operator who breaks a reservation leaves an entry in the audit", find: []string{"I8"}, with: []conduct{hopeless, hopeless, hopeless}, rests: true,
		operates: func(b *backend) stores.Inspector {
			if b.service != nil { // its requests are changed
				return b.store
			}
			return breaksUnwritten{b.store, b}
		},
		store: func(b *backend) middleware.Store {
			if b.service != nil {
				b.service.change = breakUnwritten
			}
			return b.store
		},
	},
	"quick nacks": {
		rule: "a delivery is held, not given back, while the store is down", find: []string{"I2"},
		config: quickNacks,
	},
	"no bound": {
		rule: "a stuck holder frees its key", system: servers, find: []string{"I10"},
		store: func(b *backend) middleware.Store { return noBound{b.store} },
	},
}

func variantOf(name string) variant {
	if v, ok := batchVariants[name]; ok {
		return v
	}
	return variants[name]
}

// inboxes are those of the consumers: one for all, unless the variant splits them.
func (v variant) inboxes(b *backend, c middleware.InboxConfig) ([]*middleware.Inbox, error) {
	if v.config != nil {
		v.config(&c)
	}
	store := middleware.Store(b.store)
	switch {
	case v.store != nil:
		store = v.store(b)
	case v.batch != nil:
		broken := &brokenBatch{Store: b.store, open: make(map[string]int)}
		v.batch(broken)
		store = broken
	}
	inboxes := make([]*middleware.Inbox, len(consumers))
	for i := range inboxes {
		if inboxes[i] = inboxes[0]; i > 0 && !v.split {
			continue
		}
		var err error
		if inboxes[i], err = middleware.NewInbox(store, c); err != nil {
			return nil, err
		}
	}
	return inboxes, nil
}

// inspector is what operators have.
func (v variant) inspector(b *backend) stores.Inspector {
	if v.operates == nil {
		return b.store
	}
	return v.operates(b)
}

func (v variant) middleware(in *middleware.Inbox) message.HandlerMiddleware {
	if v.around != nil {
		return v.around(in.Middleware)
	}
	return in.Middleware
}

// TestVariantsAreFound breaks one rule at a time, in four days all of them. A harness
// that does not notice proves nothing about the inbox that keeps them all.
func TestVariantsAreFound(t *testing.T) {
	t.Parallel()
	t.Run("all rules kept", func(t *testing.T) {
		t.Parallel()
		on(t, today(t, 1, variantSystems(t, "")), func(t *testing.T, open opener) {
			r := variantTrial(open(t), seedOf(t), "").run(t)
			r.must(t) // or what is found for the others proves nothing
			t.Log(r.summary())
		})
	})
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(variants)), func(name string) bool {
		// These are shown by a process that stands still, and by a store that is down.
		_, ofLeases := leaseVariants[name]
		return name == "" || name == "no bound" || name == "quick nacks" || ofLeases
	})
	const days = 4
	for _, name := range rotation.Turn(t, (len(names)+days-1)/days, names...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := variants[name]
			on(t, todayEvery(t, days, 1, variantSystems(t, name)), func(t *testing.T, open opener) {
				for try := range variantTries {
					r := variantTrial(open(t), seedOf(t)+uint64(try), name).longer(try).run(t)
					t.Logf("%s\nfound %v", r.summary(), r.invariants())
					if slices.ContainsFunc(v.find, func(i string) bool { return slices.Contains(r.invariants(), i) }) {
						return
					}
				}
				t.Errorf("the rule %q was broken and nobody noticed; want a violation of one of %v", v.rule, v.find)
			})
		})
	}
}

// variantSystems are the stores on which a rule is broken: of two, one has its turn, and the rest are
// for a soak.
func variantSystems(t *testing.T, name string) map[string]opener {
	t.Helper()
	v := variants[name]
	systems := map[string]opener{
		"postgres": newProxiedPostgres, "postgres+sql": newSQLDB, "lib/pq": newPQ, "pgbouncer": newPooledPostgres,
		"mariadb": newProxiedMariaDB, "mysql": newProxiedMySQL, "sqlite": newSQLite, "dynamodb": newDynamoDB,
	}
	if v.inSQL {
		delete(systems, "dynamodb")
	}
	if v.loses {
		return today(t, 1, losing())
	}
	maps.DeleteFunc(systems, func(system string, _ opener) bool {
		often := system == "postgres" || system == "dynamodb" || system == "mariadb" && v.inSQL || name == "" && everyday[system] != nil
		return !often && rotation.Kills(t) == 0 || !v.on(system)
	})
	return systems
}

// on reports whether the rule can be broken on a store.
func (v variant) on(system string) bool { return v.system == nil || slices.Contains(v.system, system) }

// variantTries is how often chance may spare who breaks a rule.
const variantTries = 4

// brokenLimit is when a run with a broken rule is over, which may never come to rest.
const (
	brokenLimit = 10 * time.Second
	restLimit   = time.Minute // of those that come to rest
	losingLimit = 40 * time.Second
)

// longer gives a later try more time, since a slow machine does less in the same.
func (tr *trial) longer(try int) *trial {
	tr.limit *= time.Duration(1 + 2*try)
	return tr
}

func variantTrial(s *system, seed uint64, variant string) *trial {
	handlers := mix{share: map[conduct]int{slow: 30, flaky: 10}, contested: 20}
	with := s.can(variants[variant].with...)
	for _, c := range with {
		handlers.share[c] += 10
	}
	tr := &trial{
		system: s,
		orders: planted(workload(seed, 30, handlers), 2, with...),
		setup:  setup{HandlerTimeout: time.Second, CommitTimeout: time.Second, Variant: variant},
		Config: fleet.Config{
			Seed: seed, Workers: 3, Duplicates: 0.5, Apart: 3,
			Kills: fleet.RandomKills(seed, 6, 100, 3),
		},
	}
	switch {
	case variants[variant].rests:
		tr.limit = restLimit
	case variant != "":
		tr.limit = brokenLimit
	}
	if variants[variant].loses {
		tr.limit, tr.Workers, tr.Kills = losingLimit, 1, nil // so that the same process gets it again
		tr.loses(seed)
	}
	if tr.Operated = variants[variant].operates != nil; tr.Operated {
		tr.Kills = append(tr.Kills, killsAt(seed, []string{pointDue}, 4, 2)...)
	}
	if s.proxy != nil {
		faults := lossy(seed)
		lose := max(0.15, variants[variant].lose)
		faults.LoseCommitReply, faults.LoseCommitRequest = lose, lose
		s.proxy.SetRandomFaults(faults)
	}
	return tr
}

// ackFirst acks before it calls the inbox.
func ackFirst(inbox message.HandlerMiddleware) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		next := inbox(h)
		return func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			return next(msg)
		}
	}
}

// claimApart commits the claim before the handler runs, in a transaction of its own.
type claimApart struct {
	stores.Store
	b *backend
}

func (c *claimApart) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	attempt, verdict, err := c.Store.Begin(ctx, claim)
	if attempt == nil {
		return attempt, verdict, err
	}
	if err := attempt.Commit(ctx); err != nil {
		return nil, stores.Verdict{}, err
	}
	return attemptOf(beginWithoutClaim(c.b))
}

// checkThenAct looks for the row, takes its time, and then inserts it and does not look.
type checkThenAct struct {
	stores.Store
	b *backend
}

func (c *checkThenAct) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	verdict := stores.Verdict{Outcome: stores.Claimed}
	var n int
	err := c.b.db.QueryRowContext(ctx, c.b.dialect.placeholder("SELECT count(*) FROM millpond_inbox WHERE message_id = $1 AND consumer = "+consumerID),
		claim.Key.ID, claim.Key.Consumer.Handler).Scan(&n)
	switch {
	case err != nil:
		return nil, verdict, fmt.Errorf("%w: %w", stores.ErrUnavailable, err)
	case n > 0:
		return c.Store.Begin(ctx, claim)
	}
	pause.Sleep(ctx, 30*time.Millisecond)
	a, err := beginWithoutClaim(c.b)
	if err != nil {
		return nil, verdict, err
	}
	if err := a.claim(ctx, claim, c.b.dialect.orNothing); err != nil {
		return nil, verdict, errors.Join(stores.ErrUnavailable, err, a.Rollback(ctx))
	}
	return a, verdict, nil
}

// unproven takes every end of a commit for a success.
type unproven struct{ stores.Store }

func (u unproven) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	attempt, verdict, err := u.Store.Begin(ctx, claim)
	if attempt != nil {
		attempt = unprovenAttempt{attempt}
	}
	return attempt, verdict, err
}

type unprovenAttempt struct{ stores.Attempt }

func (a unprovenAttempt) Commit(ctx context.Context) error {
	_ = a.Attempt.Commit(ctx)
	return nil
}

// noTag sends COMMIT and is content if there is no error.
type noTag struct {
	stores.Store
	b *backend
}

func (n *noTag) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, err := beginWithoutClaim(n.b)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	if a.claim(ctx, claim, plainly) == nil {
		a.byText = true
		return attemptOf(a, nil)
	}
	_ = a.Rollback(ctx)
	return n.duplicate(ctx, claim)
}

func (n *noTag) duplicate(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	attempt, verdict, err := n.Store.Begin(ctx, claim)
	if attempt != nil { // its holder has rolled back meanwhile
		return nil, stores.Verdict{Outcome: stores.InFlight}, attempt.Rollback(ctx)
	}
	return nil, verdict, err
}

// runAgain takes an unknown commit for a failed one and runs the handler again without
// asking.
type runAgain struct {
	stores.Store
	b *backend

	mu      sync.Mutex
	unknown map[string]bool
}

func (r *runAgain) Begin(ctx context.Context, claim stores.Claim) (stores.Attempt, stores.Verdict, error) {
	id := claim.Key.Consumer.Handler + string(claim.Key.ID)
	r.mu.Lock()
	again := r.unknown[id]
	delete(r.unknown, id)
	r.mu.Unlock()
	if again {
		return attemptOf(beginWithoutClaim(r.b))
	}
	attempt, verdict, err := r.Store.Begin(ctx, claim)
	if attempt != nil {
		attempt = runAgainAttempt{attempt, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.unknown == nil {
				r.unknown = make(map[string]bool)
			}
			r.unknown[id] = true
		}}
	}
	return attempt, verdict, err
}

type runAgainAttempt struct {
	stores.Attempt
	forget func()
}

func (a runAgainAttempt) Commit(ctx context.Context) error {
	err := a.Attempt.Commit(ctx)
	if errors.Is(err, stores.ErrCommitUnknown) {
		a.forget()
		return fmt.Errorf("%w: %w", stores.ErrNotCommitted, errors.New("the connection was lost"))
	}
	return err
}
