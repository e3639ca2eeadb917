package brokertest

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/millpond-go/millpond/brokers"
)

// Harness says how to reach the broker under test. Only Open is required. Many tests call its
// functions concurrently. A function ends a test that cannot go on with t.Fatal.
type Harness struct {
	// Open opens the broker, and the suite closes it. Different calls may reach the same server.
	Open func(t testing.TB) brokers.Broker

	// OpenLimited opens a broker whose new topics drop or dead-letter a message after limit
	// deliveries. Without it the suite checks the limit that Open's broker declares.
	OpenLimited func(t testing.TB, limit int) brokers.Broker

	// Topic returns a topic with no messages and one ordering unit, created if the server needs
	// that. Without it each call makes up a new name.
	Topic func(t testing.TB, b brokers.Broker) string

	// Partitioned returns a topic with no messages and several ordering units over which messages
	// spread, if the server has such topics. Without it the suite uses Topic.
	Partitioned func(t testing.TB, b brokers.Broker) string

	// Serial: only one delivery of an ordering unit is unsettled at a time, whatever
	// SubscriberConfig.InFlight allows.
	Serial bool

	// OpenRestartable opens a broker on its own server, and returns a function that kills the
	// server, starts it again on the same data, and returns when it answers.
	OpenRestartable func(t testing.TB) (b brokers.Broker, restart func())

	// KeepsAcks is how long the server may take to store an ack that it has read. If it is killed
	// earlier, it redelivers the message. Zero: an ack is stored before the next consumer gets
	// nothing.
	KeepsAcks time.Duration

	// KeptFreesSlot: an ack makes room for another delivery only when the server has stored it. So
	// after a kill the server redelivers at most as many messages as may be unsettled at a time.
	// Without this it may redeliver every message acked since the last consumer began.
	KeptFreesSlot bool

	// Kill makes the subscriber's consumer die. The client does not give back its unsettled
	// messages, so the server must notice.
	Kill func(t testing.TB, b brokers.Broker, s message.Subscriber)

	// KeyMetadata names the metadata field that the broker's publishers use as a message's key.
	// Without it messages have no keys.
	KeyMetadata string

	// PublishForeign publishes as a producer that does not know Watermill.
	PublishForeign func(t testing.TB, b brokers.Broker, topic string, payload []byte)

	// PublishHeaders publishes as such a producer, and repeats one header, once for each value.
	// Values may be empty, or not text. Without it repeated headers are not checked.
	PublishHeaders func(t testing.TB, b brokers.Broker, topic, header string, values []string)

	// PublishUndecodable publishes something that the adapter cannot read.
	PublishUndecodable func(t testing.TB, b brokers.Broker, topic string)

	// CarriesPayload and CarriesMetadata report whether the server's protocol can carry a payload,
	// or a metadata pair, at all. Without them it carries any.
	CarriesPayload  func(payload []byte) bool
	CarriesMetadata func(key, value string) bool

	// TooLarge is the length in bytes of a payload that is refused with brokers.ErrTooLarge.
	// Without it the suite publishes a nil message as one that a publisher refuses.
	TooLarge int

	// OneGroup: a topic is a queue that all subscribers share, whatever their groups.
	OneGroup bool

	// OldMessages: a group gets messages published before its first Subscribe.
	OldMessages bool

	// Short runs Watermill's suite with fewer messages.
	Short bool

	// Features, if not nil, may change what Watermill's suite assumes. It gets what follows from
	// the capabilities and this harness.
	Features func(f *tests.Features)

	// Within is how long the suite waits for events that must happen: a delivery, a redelivery
	// after a death, a Close. Zero means 10 seconds.
	Within time.Duration

	// Quiet is how long the suite waits for events that must not happen. Zero means 200 ms. If it
	// is too short for the server, faults are missed; none are invented.
	Quiet time.Duration

	// Hold is how long a delivery is kept unsettled while nothing must happen to it. Make it longer
	// than the server's timers, such as a visibility timeout. Zero means 1 second.
	Hold time.Duration

	// Join is how long the server takes to rebalance a topic when a subscriber joins or leaves a
	// group. Zero means 200 ms. If it is too short, faults are missed; none are invented.
	Join time.Duration

	// Delay is the delay of a delayed give-back. Zero means 250 ms.
	Delay time.Duration
}

func (h *Harness) setDefaults() {
	if h.Topic == nil {
		h.Topic = func(testing.TB, brokers.Broker) string { return "brokertest-" + watermill.NewUUID() }
	}
	if h.Partitioned == nil {
		h.Partitioned = h.Topic
	}
	if h.CarriesPayload == nil {
		h.CarriesPayload = func([]byte) bool { return true }
	}
	if h.CarriesMetadata == nil {
		h.CarriesMetadata = func(string, string) bool { return true }
	}
	if h.Within == 0 {
		h.Within = 10 * time.Second
	}
	if h.Quiet == 0 {
		h.Quiet = 200 * time.Millisecond
	}
	if h.Hold == 0 {
		h.Hold = time.Second
	}
	if h.Join == 0 {
		h.Join = 200 * time.Millisecond
	}
	if h.Delay == 0 {
		h.Delay = 250 * time.Millisecond
	}
}
