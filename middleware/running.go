package middleware

import (
	"bytes"
	"context"
	"reflect"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// running is the context of a handler's run. What derives from it is inside an attempt.
//
// Contexts travel with messages that the handler publishes, so it names the one that it
// belongs to: for any other its mark, its end and its transaction are not there.
type running struct {
	context.Context //nolint:containedctx // it is one

	inbox   *Inbox
	msg     *message.Message
	key     stores.Key
	foreign bool // another message's run is further out
	over    atomic.Bool
	asked   atomic.Pointer[ForeignTxError] // for a transaction that is not the attempt's
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
	if key == (runningKey{}) {
		return r
	}
	value := r.Context.Value(key)
	if value == nil {
		return nil
	}
	if _, attempt := value.(stores.Attempt); attempt {
		if r.foreign {
			return nil
		}
		return value // of an inbox around this one, on another store
	}
	if isTx(value) {
		r.asked.CompareAndSwap(nil, &ForeignTxError{Key: reflect.TypeOf(key).String(), Tx: reflect.TypeOf(value).String()})
		return nil
	}
	return value
}

// nested reports whether this delivery is already being run by an inbox around this
// one.
func (d *delivery) nested() bool {
	outer := d.outer
	return outer != nil && outer.msg == d.msg && !outer.over.Load() && sameStore(outer.inbox.store, d.in.store) &&
		outer.key.Consumer == d.claim.Key.Consumer && bytes.Equal(outer.key.ID, d.claim.Key.ID)
}

func sameStore(a, b Store) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Comparable() && a == b
}
