// Package wire converts Watermill messages to AMQP 0.9.1 messages and back, in the format of
// watermill-amqp's default marshaler, so that services on either read each other's messages. It
// also converts messages on which that marshaler fails: headers of any type become metadata, and
// headers that the broker adds on redelivery do not.
package wire

import (
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
)

// UUIDHeader carries the UUID of a message.
const UUIDHeader = "_watermill_message_uuid"

// LongestName is how long a header's name may be, in bytes, and every other short string of the
// protocol: message ids, routing keys, names of exchanges and queues. The client silently cuts
// longer ones.
const LongestName = 255

var (
	// ErrReserved: a metadata field has a name that means something else to the broker or to
	// Watermill.
	ErrReserved = fmt.Errorf("wire: %w: the name of the metadata field is reserved: rename it", brokers.ErrUnencodable)
	// ErrNameTooLong: the name of a metadata field has more than LongestName bytes.
	ErrNameTooLong = fmt.Errorf("wire: %w: the name of the metadata field has more than 255 bytes: shorten it", brokers.ErrUnencodable)
)

// Counters are the headers in which a quorum queue counts a message's deliveries. They are never
// metadata, because they change with each delivery. A copy of a message must not carry them,
// because the next consumer would trust them.
func Counters() []string { return []string{CountHeader, AcquiredHeader} }

// The two Counters.
const (
	CountHeader    = "x-delivery-count" // deliveries that count towards the limit
	AcquiredHeader = "x-acquired-count" // all deliveries, from RabbitMQ 4.3 on
)

// Counts returns how often a quorum queue has already delivered a message: the deliveries that
// count towards its limit, and all. acquired says that the server writes AcquiredHeader. Until the
// queue has written the headers itself, they come from a producer or from an earlier queue.
func Counts(d *amqp091.Delivery, acquired bool) (counted, all int64) {
	if !d.Redelivered {
		return 0, 0
	}
	counted, _ = d.Headers[CountHeader].(int64)
	all = counted
	if acquired {
		all, _ = d.Headers[AcquiredHeader].(int64)
		counted = min(counted, all) // the server writes it only once a delivery counts
	}
	return min(max(0, counted), MostCounted), min(max(0, all), MostCounted)
}

// MostCounted bounds counts, so that no sum overflows: servers that do not count leave a producer's
// value.
const MostCounted = 1 << 30

// RetryExchange is the exchange through which messages return from a queue's retry queues. It is
// internal: the server lets no client publish to it.
func RetryExchange(queue string) string { return queue + ".retry" }

// FromRetry reports whether a message comes from one of its queue's retry queues. The server
// reports the exchange, which a producer, unlike headers, cannot forge.
func FromRetry(d *amqp091.Delivery, queue string) bool { return d.Exchange == RetryExchange(queue) }

// HistoryHeader is the header with a delayed copy's history. It is not metadata.
const HistoryHeader = "x-millpond-history"

// Deaths are the headers in which the broker keeps the history of dead letters. They become
// metadata of received messages, and are not published.
func Deaths() []string {
	return []string{
		"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
		"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
	}
}

var broker = append(append(Counters(), HistoryHeader), Deaths()...)

// Copies are the headers that send a message to more queues. The broker requires lists, and closes
// the channel over a text. They are not metadata: they took effect on arrival, and a handler could
// not publish a message with them.
func Copies() []string { return []string{"CC", "BCC"} }

var copies = Copies()

// Publishing returns a message's published form: persistent, with the UUID and the metadata in
// headers. It does not copy the payload. Fields with the broker's own names, which a handler may
// have received with a message that it passes on, are left out. Errors wrap ErrReserved or
// ErrNameTooLong, and with these brokers.ErrUnencodable.
func Publishing(msg *message.Message) (amqp091.Publishing, error) {
	headers := make(amqp091.Table, len(msg.Metadata)+1)
	for name, value := range msg.Metadata {
		switch {
		case name == UUIDHeader || slices.Contains(copies, name):
			return amqp091.Publishing{}, fmt.Errorf("%w: %q", ErrReserved, name)
		case len(name) > LongestName:
			return amqp091.Publishing{}, fmt.Errorf("%w: %.40q…", ErrNameTooLong, name)
		case slices.Contains(broker, name):
		default:
			headers[name] = value
		}
	}
	headers[UUIDHeader] = msg.UUID
	return amqp091.Publishing{Headers: headers, Body: msg.Payload, DeliveryMode: amqp091.Persistent}, nil
}

// Message returns the message of a delivery with these headers and this body, which it does not
// copy. Without a UUID header, as from a producer without Watermill, the UUID is empty. Headers
// that are not texts become metadata with Text. It accepts any headers and never fails, and
// Publishing accepts its result.
func Message(headers amqp091.Table, body []byte) *message.Message {
	msg := message.NewMessage("", body)
	for name, value := range headers {
		switch name {
		case UUIDHeader:
			msg.UUID = Text(value)
		case CountHeader, AcquiredHeader, HistoryHeader:
		default:
			if !slices.Contains(copies, name) {
				msg.Metadata[name] = Text(value)
			}
		}
	}
	return msg
}

// Read returns the message that unmarshal makes of a delivery. If unmarshal fails, it returns the
// result of [Message], with the error. unmarshal cannot settle the delivery. what names unmarshal
// in errors.
func Read(what string, unmarshal func(*amqp091.Delivery) (*message.Message, error), d *amqp091.Delivery) (*message.Message, error) {
	if unmarshal != nil {
		handed := *d
		handed.Acknowledger = nil
		d = &handed
	}
	return callback.Read(what, unmarshal, d, func(d *amqp091.Delivery) (*message.Message, error) {
		return Message(d.Headers, d.Body), nil
	})
}
