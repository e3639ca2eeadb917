// Package official opens [watermill-aws], Watermill's own adapter for SQS and SNS, behind the
// contract of package brokers. It is for programs that already use it and want to keep it. Package
// brokers/sqs does more, and reads and writes the same messages. docs/brokers.md says what is not
// promised here.
//
//	import _ "github.com/millpond-go/millpond/brokers/sqs/official"
//
//	broker, err := brokers.Open(ctx, "sqs+watermill://orders?region=eu-central-1")
//
// Programs that keep their own watermill-aws subscribers can give them [Marshaler].
//
// Queues, parameters and credentials of the URL are those of package brokers/sqs, except for
//
//	visibility        how long a message stays hidden from others, whole seconds, whatever
//	                  the queue's own visibility timeout is. Default 30s
//	redelivery_delay  before a nacked message is redelivered if its GiveBack sets no delay.
//	                  Default the rest of its visibility
//	pollers, linger   are errors: watermill-aws receives and deletes one by one
//
// Messages are delivered at least once. Each delivery in flight has its own poller, which receives
// one message and keeps it until it is settled: two requests per message. Nothing extends its
// visibility, which is the SettleLimit of [Broker.Capabilities]: handler and holding must fit into
// it. If a handler takes longer, its message is delivered again while it runs, and its ack does not
// count. A nacked message is redelivered after its GiveBack's delay.
//
// Close waits for running handlers. Messages that other pollers receive meanwhile, or whose receive
// Close interrupts, are redelivered when their visibility ends, and have spent a delivery. After
// publish_timeout Publish returns an error, and watermill-aws goes on.
//
// Facts of a delivery, identity, the groups of a queue, FIFO order and IAM actions are as in
// package brokers/sqs. Attributes of any type are read.
//
// [watermill-aws]: https://github.com/ThreeDotsLabs/watermill-aws
package official
