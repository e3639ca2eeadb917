package storetest

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Harness connects the suite to one adapter. All fields are required unless they
// say otherwise.
type Harness struct {
	// NewDatabase returns an empty database for one check. It is removed with the
	// check, by the cleanup of tb.
	NewDatabase func(tb testing.TB) *Database

	// NewServer returns a database on a server of its own, which the check may stop,
	// if that is needed for Database.Outage and Database.ReadOnly. nil: NewDatabase
	// is used.
	NewServer func(tb testing.TB) *Database

	// Write inserts e into [EffectTable] with the native transaction that ctx
	// carries, as an honest handler does, and returns the driver's error.
	Write func(ctx context.Context, e Effect) error

	// Handler is the adapter's typed helper around f. f gets the context from which Write, Ways
	// and Acts take the transaction. The helper reports the error of f to the attempt, so that no
	// middleware hides it: see stores.ErrFailureHidden.
	Handler func(f func(ctx context.Context, msg *message.Message) error) message.NoPublishHandlerFunc

	// Transact runs f in a transaction of the caller's on the store's database, with the
	// adapter's publishers for it, and commits it if f returns nil. nil: the store is no
	// stores.Outbox, and the groups outbox, outputs and lease are not checked.
	Transact func(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error

	// MaxOutputs and MaxOutputBytes are the largest number of outputs in a transaction, and of bytes in
	// one, if the database limits them. 0: 10,000 outputs and a few megabytes must fit.
	MaxOutputs, MaxOutputBytes int

	// Ways are all calls of the native transaction that take SQL text.
	Ways []Way

	// Acts are the acts that take more than SQL text. Every [Act] must be here or in Lacks.
	Acts map[Act]Conduct
	// Lacks says for each other Act why handlers on this database cannot perform it. It is
	// logged.
	Lacks map[Act]string

	// Unpreventable says for acts of Acts why the store cannot keep a handler from ending its
	// transaction by them, as Way.Unpreventable does for ways.
	Unpreventable map[Act]string

	// NoBatches says why messages do not share transactions on this store, or on these
	// connections. It is logged. "": the store is a stores.Batcher, and has batches.
	NoBatches string

	// Groups names the groups of checks that are run, as subtests are named; nil: all. It
	// is for a store that has several drivers, and is checked as a whole over one.
	Groups []string

	// Largest is how many bytes of payload the database keeps, if it is less than what the
	// suite has otherwise, 16 MiB; 0: it is not.
	Largest int

	// ThroughUnknown: Pending.Through never rises, because nothing tells which transactions are
	// open. The relay then reads the outbox from its beginning.
	ThroughUnknown bool

	// Quarantined reads the quarantine, the first row first. RowID, FirstAt and
	// LastAt are not looked at. nil: the columns named in the package documentation
	// are read, with metadata in the form of this module's own stores.
	Quarantined func(ctx context.Context, admin *sql.DB) ([]stores.QuarantineRow, error)
}

// ordinary returns a way in which the store keeps a handler from ending the
// transaction, if it has one.
func (h *Harness) ordinary() Way {
	for _, way := range h.Ways {
		if way.Unpreventable == "" {
			return way
		}
	}
	return h.Ways[0]
}

// Database is one database under test.
type Database struct {
	// Admin reads what is committed and makes the suite's tables. Its connections
	// are not those of the stores.
	Admin *sql.DB

	// Open opens the store as one process does: opening it again is another process.
	// It does not migrate. The suite closes the store.
	Open func(tb testing.TB) stores.Store

	// Outage makes the database unusable for its stores until restore is called: a
	// stopped server, a lock that a stranger holds. Admin need not work meanwhile.
	// Optional.
	Outage func(tb testing.TB) (restore func())

	// ReadOnly makes the database refuse writes until restore is called. Optional.
	ReadOnly func(tb testing.TB) (restore func())

	// StrictIsolation makes the transactions of stores opened from now on
	// serializable, unless the store asks for another level. Optional.
	StrictIsolation func(tb testing.TB)
}

// Effect is one row of [EffectTable]. It stands for what a handler does to its
// domain.
type Effect struct {
	Key   string // of the message
	Label string // which effect of the message
	Run   int    // which run of the handler, from 1
}

// EffectTable has the text columns effect_key and label and the integer column run. It has no
// unique key: an effect that happened twice has two rows.
const EffectTable = "storetest_effect"

// TakenTable has the text primary key id and one row, 'taken': inserting that row
// is how handlers provoke an error.
const TakenTable = "storetest_taken"

// Way sends SQL text with the native transaction of ctx, in one particular manner:
// by a plain call, a query, a batch, a prepared statement, the connection below. It
// reads the result to its end and returns the first error.
type Way struct {
	Name string
	Exec func(ctx context.Context, text string) error

	// NotSQL: only the suite's inserts, as far as this way knows them. Dishonest statements are
	// not checked with it.
	NotSQL bool

	// Unpreventable, if not empty, is the documented reason why the store cannot keep a handler
	// from ending the transaction this way. A message with partly committed effects must then end
	// in quarantine.
	Unpreventable string
}

// Conduct performs an [Act] with the native transaction of ctx. Its error says that
// the act itself could not be performed, or what the driver said to it; the handler
// under test hides it.
type Conduct func(ctx context.Context, db *Database) error

// Run runs the suite, each check as a subtest. A store whose databases are cheap to
// make takes well under a minute.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if problems := h.problems(); len(problems) > 0 {
		t.Fatalf("storetest: Harness: %s", strings.Join(problems, "; "))
	}
	for _, act := range slices.Sorted(maps.Keys(h.Lacks)) {
		t.Logf("not checked: %s: %s", act, h.Lacks[act])
	}
	if h.Transact == nil {
		t.Log("not checked: outbox and lease: there is no Transact")
	}
	for _, g := range h.groups() {
		if h.Groups != nil && !slices.Contains(h.Groups, g.name) {
			t.Logf("not checked here: %s", g.name)
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) { c.on(t, &h) })
			}
		})
	}
}

// problems lists what the adapter has forgotten.
func (h *Harness) problems() []string {
	var problems []string
	for field, missing := range map[string]bool{
		"NewDatabase": h.NewDatabase == nil,
		"Write":       h.Write == nil,
		"Handler":     h.Handler == nil,
		"Ways":        len(h.Ways) == 0,
	} {
		if missing {
			problems = append(problems, field+" is missing")
		}
	}
	for act := range expectations {
		_, has := h.Acts[act]
		reason, lacks := h.Lacks[act]
		switch {
		case !has && !lacks:
			problems = append(problems, "Acts has no "+string(act)+", and Lacks no reason for that")
		case has && lacks:
			problems = append(problems, "both Acts and Lacks have "+string(act))
		case lacks && reason == "":
			problems = append(problems, "Lacks gives no reason for "+string(act))
		}
	}
	for act := range h.Acts {
		if _, known := expectations[act]; !known {
			problems = append(problems, "Acts has an unknown act, "+string(act))
		}
	}
	for _, name := range h.Groups {
		if !slices.ContainsFunc(h.groups(), func(g group) bool { return g.name == name }) {
			problems = append(problems, "Groups has an unknown group, "+name)
		}
	}
	slices.Sort(problems)
	return problems
}

// check is one property of a store. It reports through the TB it is given, so that
// the suite can be shown to fail.
type check struct {
	name   string
	run    func(b *bench)
	server bool // may stop the server
}

type group struct {
	name   string
	checks []check
}

func (h *Harness) groups() []group {
	return []group{
		{"claim", claimChecks()},
		{"ids", idChecks()},
		{"race", raceChecks()},
		{"resolve", resolveChecks()},
		{"look", lookChecks()},
		{"record", recordChecks()},
		{"take", takeChecks(h)},
		{"due", dueChecks()},
		{"order", orderChecks()},
		{"inspect", inspectChecks()},
		{"change", changeChecks()},
		{"decide", decideChecks()},
		{"leased", leasedChecks()},
		{"registry", registryChecks()},
		{"quarantine", quarantineChecks()},
		{"schema", schemaChecks()},
		{"handler", handlerChecks()},
		{"statement", statementChecks(h)},
		{"act", actChecks(h)},
		{"inbox", inboxChecks()},
		{"hostile", hostileChecks()},
		{"outage", outageChecks()},
		{"router", routerChecks()},
		{"parked", parkedChecks(h)},
		{"outbox", outboxChecks(h)},
		{"outputs", outputChecks(h)},
		{"lease", leaseChecks(h)},
		{"retention", retentionChecks(h)},
		{"erase", eraseChecks(h)},
		{"batch", batchChecks(h)},
	}
}

// GroupNames returns the names of all groups of checks, for [Harness].Groups: a store with
// many variants may share them out.
func GroupNames() []string {
	var names []string
	for _, g := range (&Harness{}).groups() {
		names = append(names, g.name)
	}
	return names
}

// on runs the check in a database of its own.
func (c check) on(tb testing.TB, h *Harness) {
	newDatabase := h.NewDatabase
	if c.server && h.NewServer != nil {
		newDatabase = h.NewServer
	}
	c.run(newBench(tb, h, newDatabase(tb)))
}
