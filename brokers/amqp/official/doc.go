// Package official opens [watermill-amqp], Watermill's own AMQP adapter, behind the contract of
// package brokers. It is for programs that have it, or have tuned it. Package brokers/amqp does
// more, uses the same exchanges and queues, and reads the same messages; docs/brokers.md says
// what is not promised here.
//
//	import _ "github.com/millpond-go/millpond/brokers/amqp/official"
//
//	broker, err := brokers.Open(ctx, "amqp+watermill://user:password@rabbit-1:5672/vhost")
//
// Settings of watermill-amqp's Config go into Config.Watermill. Programs that keep their own
// subscribers can give them [Marshaler]: watermill-amqp's own fails on the delivery count of a
// quorum queue, so that one nack makes a message loop until it is dropped.
//
// The URL, with TLS amqps+watermill, has the parameters, credentials and defaults of
// brokers/amqp, except for redelivery_delay, which is constant and 100ms here, and
// max_message_bytes, which is 16777216. retry_delays are only declared, for subscribers of
// brokers/amqp on the same queue. Publish.Marshal is not called.
//
// Messages are delivered at least once. One message of each Subscribe call is in flight, whatever
// SubscriberConfig.InFlight says. A nacked message is held for its delay, at most three quarters
// of the consumer timeout, and blocks the call meanwhile; then it is given back by basic.nack,
// even if it failed: from RabbitMQ 4.3 on that does not count, before it does. Close waits for
// the running handler, whose ack counts.
//
// Publish waits for one confirmation after the other. Messages without a queue are confirmed and
// lost; a deleted exchange is not declared again. After publish_timeout Publish returns an error
// and watermill-amqp continues.
//
// Delivery.NativeID is the property message-id, Delivery.Count the count of a quorum queue. The
// metadata field by which watermill-amqp marks redeliveries is left out; Delivery.Suspect
// replaces it.
//
// [watermill-amqp]: https://github.com/ThreeDotsLabs/watermill-amqp
package official
