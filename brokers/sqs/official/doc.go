// Package official opens [watermill-aws], Watermill's own adapter for SQS and SNS, behind
// the contract of package brokers: for programs that have it and want to keep it. Package
// brokers/sqs is the other choice, and the better one where messages are many or handlers
// slow; both read and write the same messages.
//
// # Usage
//
// Import the package and open it by its scheme, or make a [Broker] with [New]. A service
// moves between the two adapters by changing the scheme.
//
//	import _ "github.com/millpond-go/millpond/brokers/sqs/official"
//
//	broker, err := brokers.Open(ctx, "sqs+watermill://orders?region=eu-central-1")
//
// Those who keep their own watermill-aws subscribers can give them [Marshaler].
//
// # URL
//
// sqs+watermill://queue,queue?parameter=value, with the queues, the parameters and the
// credentials of package brokers/sqs. These differ:
//
//	visibility        how long a message stays hidden from others, whole seconds, however
//	                  long the queue's own visibility timeout is. Default 30s
//	redelivery_delay  before a nacked message comes again if its GiveBack names no delay.
//	                  Default the rest of its visibility
//	pollers, linger   are errors: watermill-aws receives and deletes one by one
//
// # Delivery semantics
//
// At least once. Each delivery in flight has a poller of its own, which receives one
// message, waits until it is settled, and deletes it: two requests a message. Nothing is
// received ahead.
//
// Nothing extends the visibility of a message. A handler that takes longer has its message
// taken away, which is then run again beside it, here or elsewhere; its ack no longer
// counts. So visibility is the SettleLimit of [Broker.Capabilities], and what a handler may
// take, holding included, has to fit into it. The price of a long one is the wait for the
// messages of a consumer that died.
//
// Each delivery is counted, and a queue's redrive policy moves a message away that was
// delivered too often. A message held within its visibility spends none, a nacked one
// does: watermill-aws by itself lets it come again when its visibility ends; here it comes
// after the delay of its GiveBack, if there is one.
//
// Delivery.Count, Time, Suspect, Key, NativeID and Coordinates, and what decides about the
// groups on a queue, are as in package brokers/sqs. With FIFO queues the order of each
// group is kept: a nacked message holds its group until it comes again.
//
// A message is never refused: attributes of any type are read, where watermill-aws by
// itself ends the program at a UUID that is no text.
//
// Close lets receives under way end, which takes the parameter wait (default 5s; 20s is
// cheapest), gives back what no handler has begun, and waits for the rest. Watermill-aws by
// itself gives up what is in flight, and cuts its receives off, which can hide a message
// for the length of its visibility.
//
// Publish sends one message at a time, each with a deadline of publish_timeout.
//
// # Identity
//
// As in package brokers/sqs: the deduplication id on FIFO queues, else none. SQS makes a
// new MessageId when a producer tries again, so it is part of Delivery.Coordinates only.
//
// # Limits
//
// Those of package brokers/sqs, and no batches. The same IAM actions are needed.
//
// [watermill-aws]: https://github.com/ThreeDotsLabs/watermill-aws
package official
