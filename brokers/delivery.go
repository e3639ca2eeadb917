package brokers

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Delivery is what a broker adapter knows about one delivery of a message.
type Delivery struct {
	Topic string // the topic of Subscribe

	// NativeID is the broker's or the producer's own id of the message, the same for all
	// deliveries; "" without one. A delivery tag or receipt is not such an id.
	NativeID string

	// Coordinates name the place where the broker stores the message, such as "orders/3/1042"; ""
	// without one. A topic that is deleted and created again reuses them.
	Coordinates string

	// Key is the producer's key for order or partitions; nil without one. It is shared: do not
	// change it.
	Key []byte

	Time  time.Time // when the broker took it, by the broker's clock; zero: unknown
	Count int       // number of this delivery, from 1; 0: unknown

	// Suspect: this may not be the first delivery. It is flagged redelivered, counted more than
	// once, comes from a retry queue, or may have been delivered to an earlier owner of its
	// partition.
	Suspect bool

	// Undecodable, if not nil, says why the message could not be read. The payload then has the
	// original bytes, and the UUID may be empty.
	Undecodable error
}

type deliveryKey struct{}

// delivery is one pointer in the context: the facts, and the settings for a redelivery. Contexts
// travel to other messages, such as those that a handler publishes, so a delivery names its
// message.
type delivery struct {
	msg   *message.Message
	facts Delivery

	mu         sync.Mutex
	giveBack   GiveBack
	unfinished bool
}

// WithDelivery returns a context that carries d, for msg.SetContext. It is for adapters, which
// call it once per delivery, with a new context each time.
func WithDelivery(ctx context.Context, msg *message.Message, d Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, &delivery{msg: msg, facts: d})
}

func deliveryOf(msg *message.Message) *delivery {
	if d, ok := msg.Context().Value(deliveryKey{}).(*delivery); ok && d.msg == msg {
		return d
	}
	return nil
}

// DeliveryOf returns the facts of the delivery of msg. It reports false for messages from
// subscribers that do not keep this contract, for copies, and for messages published with another
// message's context. So a middleware that passes on a copy loses the facts. It is safe for
// concurrent use.
func DeliveryOf(msg *message.Message) (Delivery, bool) {
	d := deliveryOf(msg)
	if d == nil {
		return Delivery{}, false
	}
	return d.facts, true
}

// GiveBack says how a delivery is redelivered after a nack.
type GiveBack struct {
	After time.Duration // the least time from the nack to the redelivery; 0: the broker decides
	// Failed: the handler failed, which may count towards the broker's delivery limit. Otherwise
	// the nack means "not now", and must not count if the broker can tell the difference
	// (Capabilities.FreeGiveBack).
	Failed bool
}

// SetGiveBack sets how the subscriber redelivers msg after a nack. The last call before the nack
// counts. If [DeliveryOf] reports false, it does nothing and reports false. It is safe for
// concurrent use.
func SetGiveBack(msg *message.Message, g GiveBack) bool {
	d := deliveryOf(msg)
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giveBack = g
	return true
}

// GiveBackFrom returns what SetGiveBack set. It is for adapters, after a nack. ctx is the result of
// WithDelivery, because a handler may have replaced the message's context. It is safe for
// concurrent use.
func GiveBackFrom(ctx context.Context) GiveBack {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return GiveBack{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.giveBack
}

// SetUnfinished tells the subscriber that msg is Suspect, and no earlier delivery finished it. If
// the broker delivers in order, this bounds how many further messages an earlier owner of the
// partition can have received. If [DeliveryOf] reports false, it does nothing. It is safe for
// concurrent use.
func SetUnfinished(msg *message.Message) {
	if d := deliveryOf(msg); d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unfinished = true
	}
}

// UnfinishedFrom reports whether SetUnfinished was called. It is for adapters, after the
// settlement; ctx is the result of WithDelivery. It is safe for concurrent use.
func UnfinishedFrom(ctx context.Context) bool {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unfinished
}
