// Package memory is a bounded message broker inside the process, for tests,
// examples and programs that need no broker of their own. It keeps the contract of
// package brokers in full, with the redeliveries, counts and limits of a real one.
//
// # Usage
//
//	broker, err := memory.New(memory.Config{Capacity: 10_000})
//	…
//	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock"})
//	publisher, err := broker.Publisher(brokers.PublisherConfig{})
//
// Subscribers and publishers must come from the same Broker: every New and every
// URL opened makes a broker of its own, with nothing in it.
//
// # URL
//
// Importing the package registers the scheme memory in the default mux:
//
//	memory://?capacity=10000&delivery_limit=5
//
// Parameters, all optional, are those of [Config]:
//
//	capacity          messages held per topic, such as 10000; default 1024
//	when_full         wait (default) or fail
//	delivery_limit    deliveries before a message is dead-lettered; default 0, no limit
//	redelivery_delay  pause after a plain nack, such as 50ms; default 10ms, 0s for none
//	key_metadata      metadata key that becomes Delivery.Key; default none
//
// # Delivery semantics
//
// Every group gets every message of a topic once, and again after each nack. The
// Subscribe calls of one group share its messages. A message published before a
// group's first Subscribe is kept for it while there is room; see Limits.
//
// With SubscriberConfig.InFlight 1, the default, a single Subscribe call gets the
// messages in the order of publishing. A nacked message comes again after the
// delay of its GiveBack, or else Config.RedeliveryDelay, ahead of everything
// published later; during the delay the messages behind it are delivered. With no
// delay at all, a message that is nacked for ever keeps them waiting.
//
// Each delivery is a fresh copy: nothing that a handler or the publisher changes in
// payload or metadata reaches another delivery. The message's context carries the
// values of the Subscribe context, none of the publisher's, and ends when the
// message is settled, the Subscribe context ends or the subscriber is closed. An
// ack after the context has ended still counts.
//
// When the subscriber is closed or a Subscribe context ends, no more messages are
// handed out, those that nobody has received go back, and the unsettled ones may
// still be settled for SubscriberConfig.DrainTimeout. What is unsettled then counts
// as lost by its consumer. Only then is the output channel closed, so that a router
// does not close its publisher under a running handler.
//
// A delivery counts towards Config.DeliveryLimit if it was nacked with
// GiveBack.Failed or lost. A plain nack means "not now" and is free. At the limit
// the message becomes a dead letter of its group; see [Broker.DeadLetters].
//
// [Subscriber.Abandon] plays a consumer that dies, for crash tests.
//
// # Identity
//
// Delivery.NativeID is made by the broker for each published message, unique among
// all brokers ever, and the same for all groups and deliveries. Coordinates are
// "topic/n", counted from 1 in every new Broker. Publishing a message twice makes
// two messages with one UUID. Delivery.Count is exact and Suspect means Count > 1.
//
// # Limits
//
// Nothing survives the process or [Broker.Close].
//
// A topic holds at most Config.Capacity messages. A message takes one place until
// every group that has ever subscribed to the topic has acked it; waiting,
// unsettled, delayed and dead-lettered messages all take theirs, so the slowest
// group sets the pace. If no place is free, Publish waits, or returns
// brokers.ErrFull if Config.FailWhenFull is set. Messages acked by all groups are
// kept in the places that are free, for groups that come later, and make room for
// new ones, those settled longest ago first.
//
// Capacity counts messages, not bytes. Topics and groups, whose names the program
// chooses, are not limited and live as long as the broker.
package memory
