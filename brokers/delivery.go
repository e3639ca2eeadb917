package brokers

import (
	"context"
	"sync"
	"time"
)

// Delivery is what a broker adapter knows about one arrival of a message.
type Delivery struct {
	Topic string // as subscribed

	// NativeID is the broker's or the producer's own id of the message, which all
	// deliveries share; "" if there is none. A delivery tag or receipt is not one.
	NativeID string

	// Coordinates name the place where the broker stores the message, such as
	// "orders/3/1042"; "" if it has none. They start again when a topic is created
	// anew.
	Coordinates string

	// Key is the key by which the producer orders or partitions; nil without one.
	// It must not be changed.
	Key []byte

	Time  time.Time // when the broker took it, by the broker's clock; zero: unknown
	Count int       // which delivery this is, 1 for the first; 0: unknown

	// Suspect: this may not be the first delivery (flagged redelivered, counted
	// more than once, back from a retry queue, or among the first after a
	// partition was assigned).
	Suspect bool

	// Undecodable, if not nil, says why the message could not be read. Its payload
	// is then what came from the wire, and its UUID may be empty.
	Undecodable error
}

type deliveryKey struct{}

// delivery is one pointer in the context: the facts, and the answer on its way back.
type delivery struct {
	facts Delivery

	mu       sync.Mutex
	giveBack GiveBack
}

// WithDelivery returns a context that carries d. Adapters call it once per
// delivery, with a fresh context each time a message is handed out.
func WithDelivery(ctx context.Context, d Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, &delivery{facts: d})
}

// DeliveryFrom returns the facts of the delivery. It reports false for messages of
// a subscriber that is not behind this contract.
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return Delivery{}, false
	}
	return d.facts, true
}

// GiveBack says how a delivery is to be given back when it is nacked.
type GiveBack struct {
	After time.Duration // not before this time from the nack on; 0: at the broker's discretion
	// Failed: the handler failed, which may count towards the broker's delivery
	// limit. Otherwise it is only "not now", and must not count if the broker knows
	// the difference.
	Failed bool
}

// SetGiveBack tells the subscriber how to give this delivery back, if it will be
// nacked; the last call before the nack counts. It reports false, and does
// nothing, for messages of a subscriber that is not behind this contract.
func SetGiveBack(ctx context.Context, g GiveBack) bool {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giveBack = g
	return true
}

// GiveBackFrom returns what SetGiveBack has set on the context of a delivery, for
// the adapter to read when the message was nacked.
func GiveBackFrom(ctx context.Context) GiveBack {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return GiveBack{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.giveBack
}
