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

// running is the context of a handler's run. What derives from it is inside an attempt.
//
// Contexts travel with messages that the handler publishes, so it names the one that it
// belongs to: for any other its mark, its end and its transaction are not there.
type running struct {
	context.Context //nolint:containedctx // it is one

	inbox  *Inbox
	msg    *message.Message
	key    stores.Key
	ranAs  []byte   // the id of its effects, if that is another
	number int      // of the attempt
	outer  *running // the run that the message came with, of its own or another's
	over   atomic.Bool
	said   *capture.Run                   // nil: handlers publish nothing
	others atomic.Int32                   // questions of other messages' runs that are passing
	asked  atomic.Pointer[ForeignTxError] // for a transaction that is not the attempt's
}

type runningKey struct{}

// runningIn returns the innermost run that ctx comes from.
func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// ownContext is the context that came with msg, without the end of another message's run,
// and the run that it comes from, of this message or another.
func ownContext(ctx context.Context, msg *message.Message) (context.Context, *running) {
	outer := runningIn(ctx)
	if outer != nil && outer.msg != msg {
		return context.WithoutCancel(ctx), outer
	}
	return ctx, outer
}

// Value implements context.Context. The attempt's own transaction is further in, so a
// transaction that is found here is not one that the handler may write to.
func (r *running) Value(key any) any {
	switch key {
	case runningKey{}:
		return r
	case capture.Key{}:
		return r.said
	case leased.Key{}: // its own lease is further in
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
	case attempt: // of an inbox around this one, on another store
		return value
	case others: // which a run further out has found, and hides
		return r.asks(key, hidden.tx)
	case isTx(value):
		return r.asks(key, value)
	}
	return value
}

// hiddenTx is a transaction that one run hides from another one's handler. The other one
// notes the question.
type hiddenTx struct{ tx any }

// foreign reports whether another message's run is further out.
func (r *running) foreign() bool { return r.outer != nil && r.outer.msg != r.msg }

// further returns what is further out. The run there does not note the question, which is not
// its own handler's, nor one that this asks in the same moment; that is not answered either.
func (r *running) further(key any) any {
	if !r.foreign() {
		return r.Context.Value(key)
	}
	r.outer.others.Add(1)
	defer r.outer.others.Add(-1)
	return r.Context.Value(key)
}

// asks notes that the handler has asked for a transaction that is not the attempt's, and
// returns what it gets. The handler of another message further in gets it from its own run.
func (r *running) asks(key, tx any) any {
	if r.others.Load() > 0 {
		return hiddenTx{tx}
	}
	r.asked.CompareAndSwap(nil, &ForeignTxError{Key: reflect.TypeOf(key).String(), Tx: reflect.TypeOf(tx).String()})
	return nil
}

// nested reports whether this delivery is already being run by an inbox around this
// one.
func (v *visit) nested() bool {
	outer, key := v.outer, v.arrival.Claim.Key
	return outer != nil && outer.msg == v.msg && !outer.over.Load() && sameStore(outer.inbox.store, v.in.store) &&
		outer.key.Consumer == key.Consumer && bytes.Equal(outer.key.ID, key.ID)
}

func sameStore(a, b Store) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Comparable() && a == b
}
