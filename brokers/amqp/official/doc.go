// Package official opens [watermill-amqp], Watermill's own AMQP adapter, behind the contract of
// package brokers. It is for programs that already use or have tuned it. Package brokers/amqp does
// more, uses the same exchanges and queues, and reads the same messages. docs/brokers.md says what
// is not promised here.
//
//	import _ "github.com/millpond-go/millpond/brokers/amqp/official"
//
//	broker, err := brokers.Open(ctx, "amqp+watermill://user:password@rabbit-1:5672/vhost")
//
// Put settings of watermill-amqp's Config into Config.Watermill. Programs that keep their own
// subscribers can give them [Marshaler]: watermill-amqp's own fails on a quorum queue's delivery
// count, so one nack makes a message loop until it is dropped.
//
// The URL, with TLS amqps+watermill, has the parameters, credentials and defaults of brokers/amqp,
// with two exceptions: redelivery_delay is always 100ms, and max_message_bytes defaults to
// 16777216. retry_delays are only declared, for subscribers of brokers/amqp on the same queue.
// Publish.Marshal is not called.
//
// Messages are delivered at least once. Each Subscribe call has one message in flight, whatever
// SubscriberConfig.InFlight says. A nacked message is held for its delay, for three quarters of the
// consumer timeout at most, and blocks the call meanwhile. Then it is given back with basic.nack,
// even if it failed. From RabbitMQ 4.3 on that does not count; before 4.3 it does. Close waits for
// the running handler, whose ack counts.
//
// Publish waits for one confirmation after the other. Messages without a queue are confirmed and
// lost. A deleted exchange is not declared again. After publish_timeout Publish returns an error,
// and watermill-amqp goes on.
//
// Delivery.NativeID is the property message-id, Delivery.Count a quorum queue's count. The metadata
// field with which watermill-amqp marks redeliveries is left out; Delivery.Suspect replaces it.
//
// [watermill-amqp]: https://github.com/ThreeDotsLabs/watermill-amqp
package official
