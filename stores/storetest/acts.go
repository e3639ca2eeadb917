package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Act names something that a handler does to its transaction and that takes more
// than SQL text. It is performed between the handler's two effects, or after them,
// and its error is hidden.
type Act string

// The acts. A driver that has several calls for one of them does them all.
const (
	// ActCommit calls Commit of the native transaction.
	ActCommit Act = "commit"
	// ActRollback calls Rollback of the native transaction.
	ActRollback Act = "rollback"
	// ActBatchCommit makes a statement fail and queues COMMIT in a batch behind it,
	// or in the next batch: there the server answers ROLLBACK, without an error.
	ActBatchCommit Act = "batch commit"
	// ActNested uses the driver's own nested transactions: one that is committed,
	// and one that is rolled back after an error. This is honest.
	ActNested Act = "nested transaction"
	// ActLeakQuery leaves a goroutine behind that is in the middle of a statement of
	// about a second when the handler returns.
	ActLeakQuery Act = "leak a query"
	// ActOpenRows leaves rows open, with more to come.
	ActOpenRows Act = "leave rows open"
	// ActCancelRead runs a long SELECT under a context that ends after 50 ms.
	ActCancelRead Act = "cancel a read"
	// ActCancelWrite runs a long INSERT, into a table of the adapter, under a
	// context that ends after 50 ms.
	ActCancelWrite Act = "cancel a write"
	// ActServerTimeout lets the server cancel a statement for taking too long.
	ActServerTimeout Act = "server timeout"
	// ActDeferredConstraint violates a constraint that is checked at commit.
	ActDeferredConstraint Act = "deferred constraint"
	// ActSerialization gets a serialization failure.
	ActSerialization Act = "serialization failure"
	// ActDeadlock is the victim of a deadlock.
	ActDeadlock Act = "deadlock"
	// ActProcedureCommit calls a procedure that commits.
	ActProcedureCommit Act = "procedure that commits"
	// ActConfigure changes how the connection decides on transactions: autocommit,
	// commit hooks, isolation, read only.
	ActConfigure Act = "configure the connection"
	// ActCloseConnection closes the connection under the transaction.
	ActCloseConnection Act = "close the connection"
	// ActLoseConnection has the server end the connection, unnoticed by the client.
	ActLoseConnection Act = "lose the connection"
)

// expectations are what must come of each act.
var expectations = map[Act]misconduct{
	ActCommit:             {want: mustFail, errs: []error{stores.ErrTxManaged, stores.ErrTxEnded}},
	ActRollback:           {want: mustFail, errs: []error{stores.ErrTxManaged, stores.ErrTxEnded}},
	ActBatchCommit:        {want: mustFail, errs: []error{stores.ErrTxManaged, stores.ErrTxEnded, stores.ErrTxAborted}},
	ActNested:             {want: mustCommit},
	ActLeakQuery:          {want: mayCommit, last: true},
	ActOpenRows:           {want: mayCommit, last: true},
	ActCancelRead:         {want: mayCommit},
	ActCancelWrite:        {want: mayCommit},
	ActServerTimeout:      {want: mayCommit},
	ActDeferredConstraint: {want: mustFail},
	ActSerialization:      {want: mustFail},
	ActDeadlock:           {want: mustFail},
	ActProcedureCommit:    {want: mayCommit},
	ActConfigure:          {want: mayCommit},
	ActCloseConnection:    {want: mustFail},
	ActLoseConnection:     {want: mustFail, unknown: true},
}

func actChecks(h *Harness) []check {
	var checks []check
	for act, expected := range expectations {
		conduct, ok := h.Acts[act]
		if !ok {
			continue // Run has logged why
		}
		checks = append(checks, check{name: string(act), run: func(b *bench) {
			m := expected
			if h.Unpreventable[act] != "" {
				m.unpreventable, m.errs = true, nil
			}
			m.act = func(ctx context.Context, _ *message.Message) error {
				err := conduct(ctx, b.db)
				if errors.Is(err, ErrNotPerformed) {
					b.tb.Errorf("%s: %v", act, err)
				}
				return err
			}
			b.tell(string(act), m)
			if m.want == mustFail {
				m.last = true
				b.tell(string(act)+", at the end", m)
			}
		}})
	}
	return sorted(checks)
}

// ErrNotPerformed is wrapped by the error of a [Conduct] that was not able to set the
// act up, which fails the check: the act proves nothing then.
var ErrNotPerformed = errors.New("storetest: the act was not performed")

// tell tells the story of a misconduct four times: with both endings, on the store
// alone and through the inbox.
func (b *bench) tell(name string, m misconduct) {
	b.tb.Helper()
	store := b.open()
	in := b.service(store)
	for _, end := range []ending{hides, fails} {
		m.end = end
		b.story(name+", "+string(end), m).throughStore(store)
		b.story(name+", "+string(end)+", behind the inbox", m).throughInbox(in)
	}
	b.healthy(store)
}

// healthy fails if the store is not as good as new.
func (b *bench) healthy(store stores.Store) {
	b.tb.Helper()
	for range 3 {
		id := rand.Text()
		b.complete(store, claimFor(id, id))
	}
}

// AllActs returns all acts.
func AllActs() []Act { return slices.Sorted(maps.Keys(expectations)) }
