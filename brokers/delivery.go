package brokers

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
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
// Contexts travel to other messages, with those that a handler publishes for example, so
// it names the one that it belongs to.
type delivery struct {
	msg   *message.Message
	facts Delivery

	mu       sync.Mutex
	giveBack GiveBack
}

// WithDelivery returns a context that carries what is known of this delivery of msg, for
// msg.SetContext. Adapters call it once per delivery, with a fresh context each time a
// message is handed out.
func WithDelivery(ctx context.Context, msg *message.Message, d Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, &delivery{msg: msg, facts: d})
}

func deliveryOf(msg *message.Message) *delivery {
	if d, ok := msg.Context().Value(deliveryKey{}).(*delivery); ok && d.msg == msg {
		return d
	}
	return nil
}

// DeliveryOf returns the facts of the delivery that msg came with. It reports false for
// every other message: one of a subscriber that is not behind this contract, one that was
// published with the context of another, and a copy. A middleware that hands on a copy of
// its message, with the context or without, takes the facts from it.
func DeliveryOf(msg *message.Message) (Delivery, bool) {
	d := deliveryOf(msg)
	if d == nil {
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

// SetGiveBack tells the subscriber how to give this delivery of msg back, if it will be
// nacked; the last call before the nack counts. It reports false, and does nothing, for
// messages that [DeliveryOf] knows nothing of.
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

// GiveBackFrom returns what SetGiveBack has set for the delivery that ctx was made for,
// for the adapter to read when the message was nacked. ctx is what WithDelivery has
// returned: a handler may have replaced the message's.
func GiveBackFrom(ctx context.Context) GiveBack {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return GiveBack{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.giveBack
}
