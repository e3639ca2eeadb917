// Package wire turns Watermill messages into AMQP 0.9.1 messages and back, in the format
// of watermill-amqp's default marshaler, so that services on either read each other's
// messages. Where that one fails, this one does not: headers of any type become
// metadata, and what the broker adds on redelivery is no metadata.
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

// LongestName is how many bytes the name of a header may have, and every other short
// string of the protocol: message ids, routing keys, names of exchanges and queues. The
// client cuts longer ones without a word.
const LongestName = 255

var (
	// ErrReserved: the message has a metadata field of a name that means something else
	// to the broker or to Watermill.
	ErrReserved = fmt.Errorf("wire: %w: the name of the metadata field is reserved: rename it", brokers.ErrUnencodable)
	// ErrNameTooLong: the name of a metadata field has more than LongestName bytes.
	ErrNameTooLong = fmt.Errorf("wire: %w: the name of the metadata field has more than 255 bytes: shorten it", brokers.ErrUnencodable)
)

// Counters are the headers with which a quorum queue counts the deliveries of a message.
// They are never metadata, which must not change from delivery to delivery. A copy of a
// message must not carry them: the next consumer would take them for its own.
func Counters() []string { return []string{CountHeader, AcquiredHeader} }

// The two Counters.
const (
	CountHeader    = "x-delivery-count" // deliveries that count towards the limit
	AcquiredHeader = "x-acquired-count" // all deliveries, from RabbitMQ 4.3 on
)

// Counts reads how often a quorum queue has delivered a message before: what counted towards
// its limit, and all. acquired says that the server writes AcquiredHeader. What the headers
// say is a producer's word, or of the queue that a message was in before, until the queue
// has written its own.
func Counts(d *amqp091.Delivery, acquired bool) (counted, all int64) {
	if !d.Redelivered {
		return 0, 0
	}
	counted, _ = d.Headers[CountHeader].(int64)
	all = counted
	if acquired {
		all, _ = d.Headers[AcquiredHeader].(int64)
		counted = min(counted, all) // not written before something counts
	}
	return min(max(0, counted), MostCounted), min(max(0, all), MostCounted)
}

// MostCounted bounds counts, of which a server that does not count lets a producer's stand, so
// that no sum of them overflows.
const MostCounted = 1 << 30

// RetryExchange is what messages come back by from the retry queues of a queue. It is
// internal: the server lets nobody publish to it.
func RetryExchange(queue string) string { return queue + ".retry" }

// FromRetry reports whether a message comes from a retry queue of the queue that it was
// delivered from. The server says by which exchange it came; headers say what they like.
func FromRetry(d *amqp091.Delivery, queue string) bool { return d.Exchange == RetryExchange(queue) }

// HistoryHeader is what a copy that is delivered later carries of its past. It is no
// metadata.
const HistoryHeader = "x-millpond-history"

// Deaths are the headers in which the broker keeps the history of dead letters. They are
// metadata of messages that come with them, and are left out of those that go.
func Deaths() []string {
	return []string{
		"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
		"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
	}
}

var broker = append(append(Counters(), HistoryHeader), Deaths()...)

// Copies are the headers that send a message to more queues. They are lists to the
// broker, which closes the channel over a text. They are no metadata: a message that has
// arrived has been sent, and whoever handed it on with them could not publish it.
func Copies() []string { return []string{"CC", "BCC"} }

var copies = Copies()

// Publishing returns the message as it is published: persistent, the UUID and the
// metadata in headers, the payload not copied. Fields in the broker's own names, which a
// handler may have got with the message that it hands on, are left out. Errors wrap
// ErrReserved or ErrNameTooLong, and with these brokers.ErrUnencodable.
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

// Message returns the message of a delivery with these headers and this body, which is
// not copied. Without a UUID header, as from a producer without Watermill, the UUID is
// empty. Headers that are no texts become metadata as Text writes them. It takes any
// headers and never fails, and Publishing takes what it returns.
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

// Read returns the message of a delivery as unmarshal makes it, and else that of [Message];
// the error is that of unmarshal, which cannot settle the delivery. what names it in errors.
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
