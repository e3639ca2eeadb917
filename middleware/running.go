package middleware

import (
	"bytes"
	"context"
	"reflect"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/leased"
	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/stores"
)

// running is the context of a handler's run. Every context derived from it is inside the attempt.
//
// Contexts travel with messages that the handler publishes, so a running names its message. To
// other messages it hides its mark, its end and its transaction.
type running struct {
	context.Context //nolint:containedctx // it is one

	inbox  *Inbox
	msg    *message.Message
	key    stores.Key
	ranAs  []byte   // the id that its effects count under, if different
	number int      // of the attempt
	outer  *running // the run in the context that the message arrived with, of this or another message
	over   atomic.Bool
	said   *capture.Run                   // nil: handlers publish nothing
	others atomic.Int32                   // lookups of other messages' runs in progress
	asked  atomic.Pointer[ForeignTxError] // the foreign transaction that the handler asked for
}

type runningKey struct{}

// runningIn returns the innermost run in ctx.
func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// ownContext returns msg's context without the cancellation of another message's run, and the run
// that the context comes from, if any.
func ownContext(ctx context.Context, msg *message.Message) (context.Context, *running) {
	outer := runningIn(ctx)
	if outer != nil && outer.msg != msg {
		return context.WithoutCancel(ctx), outer
	}
	return ctx, outer
}

// Value implements context.Context. The attempt's own transaction is in an inner context, so any
// transaction found here is foreign.
func (r *running) Value(key any) any {
	switch key {
	case runningKey{}:
		return r
	case capture.Key{}:
		return r.said
	case leased.Key{}: // its own lease is in an inner context
		return nil
	}
	value := r.further(key)
	_, attempt := value.(stores.Attempt)
	if !attempt {
		_, attempt = value.(stores.Member)
	}
	hidden, others := value.(hiddenTx)
	switch {
	case attempt && r.foreign():
		return nil
	case attempt: // of an outer inbox on another store
		return value
	case others: // an outer run has found and hidden it
		return r.asks(key, hidden.tx)
	case isTx(value):
		return r.asks(key, value)
	}
	return value
}

// hiddenTx is a transaction that one run hides from the handler of another message. The run of
// that message then notes the question.
type hiddenTx struct{ tx any }

// foreign reports whether the next outer run is another message's.
func (r *running) foreign() bool { return r.outer != nil && r.outer.msg != r.msg }

// further asks the outer contexts. The outer run does not note the question, because its own
// handler did not ask. A question of its own handler at the same moment is neither noted nor
// answered.
func (r *running) further(key any) any {
	if !r.foreign() {
		return r.Context.Value(key)
	}
	r.outer.others.Add(1)
	defer r.outer.others.Add(-1)
	return r.Context.Value(key)
}

// asks notes that the handler asked for a foreign transaction, and returns what the handler gets.
// For the handler of another message it returns a hiddenTx, and that message's run decides.
func (r *running) asks(key, tx any) any {
	if r.others.Load() > 0 {
		return hiddenTx{tx}
	}
	r.asked.CompareAndSwap(nil, &ForeignTxError{Key: reflect.TypeOf(key).String(), Tx: reflect.TypeOf(tx).String()})
	return nil
}

// nested reports whether an outer inbox already runs this delivery.
func (v *visit) nested() bool {
	outer, key := v.outer, v.arrival.Claim.Key
	return outer != nil && outer.msg == v.msg && !outer.over.Load() && sameStore(outer.inbox.store, v.in.store) &&
		outer.key.Consumer == key.Consumer && bytes.Equal(outer.key.ID, key.ID)
}

func sameStore(a, b Store) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Comparable() && a == b
}
