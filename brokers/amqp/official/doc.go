// Package official opens [watermill-amqp], Watermill's own AMQP adapter, behind the
// contract of package brokers: for programs that have it, or have tuned it. Package
// brokers/amqp is the other choice; both use the same exchanges and queues, and read each
// other's messages.
//
// # Usage
//
// Import the package and open it by its scheme, or make a [Broker] with [New]. A service
// moves between the two adapters by changing the scheme.
//
//	import _ "github.com/millpond-go/millpond/brokers/amqp/official"
//
//	broker, err := brokers.Open(ctx, "amqp+watermill://user:password@rabbit-1:5672/vhost")
//
// What a program has set in watermill-amqp's Config it sets in Config.Watermill. Those who
// keep their own watermill-amqp subscribers can give them [Marshaler]: watermill-amqp's
// own fails on the number in which a quorum queue counts deliveries, so that one nack
// makes a message loop until it is dropped.
//
// # URL
//
// amqp+watermill://user:password@host:port/vhost?parameter=value, with TLS
// amqps+watermill. Parameters, credentials and defaults are those of brokers/amqp, except
// for redelivery_delay, which is constant and 100ms here, and max_message_bytes, which is
// 16777216. retry_delays are only declared,
// for the subscribers of brokers/amqp that share the queue.
//
// # Delivery semantics
//
// At least once. One message of each Subscribe call is in flight, whatever
// SubscriberConfig.InFlight says, because watermill-amqp takes the next when the one
// before is settled; more need more Subscribe calls, or brokers/amqp. Each call has a
// connection of its own, and its messages come in the order of the queue.
//
// A nacked message is kept for the delay of its GiveBack, at most three quarters of the
// consumer timeout, and then given back by basic.nack: it comes again, in front of the
// messages behind it, to whoever consumes the queue. In that time nothing else of this
// Subscribe call is worked on. On RabbitMQ 4.3 and later a nack does not count towards
// the delivery limit, and the server adds the first of the retry_delays. That of a failed
// message does not count either, since watermill-amqp knows no basic.reject: the limit is
// then reached by lost connections only, and Capabilities do not name it. Before 4.3 each
// nack counts, "not now" as well.
//
// Exchanges, queues, dead letters and delivery limits are declared as brokers/amqp does,
// again on every connection. A lost connection is made again. Its message comes again,
// also to others while the handler still runs: watermill-amqp notices only afterwards.
// When a consumer loses its queue or its channel, watermill-amqp makes a message of
// nothing, without payload and id; here no handler sees it.
//
// Close waits for the running handlers, and their acks count. The message behind, which
// no handler has begun, is given back, which before 4.3 counts as a delivery.
//
// Publish returns nil when the broker has confirmed each message; it waits for one
// confirmation after the other. The preset queue declares the queue before the first
// message of a topic. Otherwise nobody learns of messages that no queue takes, because
// watermill-amqp does not read what the broker returns: those of a topic to which no
// group has ever subscribed, or whose queues were deleted, are lost and confirmed.
// brokers/amqp reports them.
//
// # Identity
//
// Delivery.NativeID is the property message-id, which Publish sets to the UUID; producers
// choose it and may leave it out. Delivery.Count is what a quorum queue counts. There are
// no coordinates. The metadata field by which watermill-amqp marks redeliveries is left
// out, because the same message would have other metadata when it comes again;
// Delivery.Suspect tells.
//
// # Limits
//
// RabbitMQ 3.10 and 4.3 are tested. A message may have 16 MiB, or max_message_bytes; its
// metadata must fit into one frame, 128 KiB by default. A subscriber or publisher that is
// closed while the broker is away leaves one goroutine of watermill-amqp behind.
//
// [watermill-amqp]: https://github.com/ThreeDotsLabs/watermill-amqp
package official
