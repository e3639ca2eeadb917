// Package sqs is a broker on Amazon SQS, and SNS in front of it, with subscribers and
// publishers of its own on aws-sdk-go-v2. It writes and reads the wire format of
// watermill-aws, so that services on either understand each other.
//
// # Usage
//
//	broker, err := brokers.Open(ctx, "sqs://orders?region=eu-central-1")
//	…
//	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock", InFlight: 32})
//	messages, err := subscriber.Subscribe(ctx, "orders")
//	publisher, err := broker.Publisher(brokers.PublisherConfig{})
//
// What a URL cannot say (a configuration of AWS with roles to assume, options of the
// clients) goes into a [Config], given to [New]; [ParseURL] makes one from a URL to begin
// with. To open means to find region and credentials and to look at the queues that the URL
// names; any other queue is looked at when it is subscribed to or published to.
//
// # URL
//
// Importing the package registers the scheme sqs in the default mux:
//
//	sqs://?region=eu-central-1&parameter=value&…
//	sqs://queue,queue?parameter=value&…
//
// The queues, if there are any, are those that Capabilities speaks of. They need not be
// all that are used: topics are arguments of Subscribe and Publish. A topic is the name of
// a queue, its URL or its ARN, or the ARN of an SNS topic. Characters that no name of a
// queue may have become hyphens, and names that are too long are cut; such names end in a
// hash, so that no two topics share a queue by that.
//
// Credentials never stand in a URL: the SDK's provider chain finds them (AWS_PROFILE,
// AWS_ACCESS_KEY_ID, web identity, the role of the container or the machine), and renews
// those that expire. Parameters, all optional:
//
//	region                  default what the SDK finds, such as AWS_REGION
//	endpoint                of an emulator or a VPC endpoint, such as http://127.0.0.1:9324
//	connect_timeout         bound of each question at start; default 10s
//
//	queue                   name of the queue for a topic, made from {topic} and {group};
//	                        default {topic}, and {topic}-{group} for SNS topics
//	sns                     what stands before the topic in the ARNs of SNS topics, such as
//	                        arn:aws:sns:eu-central-1:123456789012: topics are then SNS topics
//	delivery_limit          maxReceiveCount of all queues; default it is read from each
//	create_queues           true: make queues, SNS topics and subscriptions that are
//	                        missing, with a dead-letter queue if delivery_limit is set
//
//	visibility              how long a message stays hidden without a sign of life; default
//	                        the queue's visibility timeout
//	wait                    how long a receive waits for messages, 1s to 20s; default 5s
//	pollers                 receives at a time, more than one only while there is plenty;
//	                        default one for ten in flight
//	linger                  how long a request waits to be filled; default 10ms
//	redelivery_delay        first pause after a plain nack, doubled up to 30s; default 1s
//
//	group_metadata          field that is the group of FIFO messages; default MessageGroupId
//	deduplication_metadata  field that is their deduplication id; default MessageDeduplicationId
//	publish_timeout         bound of Publish while the service does not answer; default 30s
//
// # Delivery semantics
//
// Messages are received in batches of up to ten, never more than may be in flight. Of each
// the visibility is extended from its receive on, until it is settled, at most for 12
// hours: a handler may take as long as it needs, and a held delivery costs no receive. A
// consumer that dies leaves its messages hidden for the visibility timeout, counted from
// the last extension.
//
// Acked messages are deleted, ten in a request. A delete that fails is tried again until
// the visibility ends. The context of a delivery ends, with the cause [ErrTakenBack], if
// SQS says that somebody else may have the message. Its ack still deletes the message if
// SQS lets it: the handler has done its work.
//
// A nacked message comes again after the delay of its GiveBack, in whole seconds rounded
// up, at most 12 hours after its receive; without one after redelivery_delay. SQS counts
// receives, and knows no difference between a failure and "not now": whoever nacks spends
// one of the redrive policy's maxReceiveCount.
//
// Of a FIFO queue, messages of a group are delivered one at a time, in order, and those of
// other groups beside them. A nacked one holds its group only. What was received behind it
// is given back with it and none of it is begun, which spends a receive of each.
// What is acked frees its place among those in flight when it is deleted, so that the
// receive after it finds the group open. A server that does not answer a waiting receive
// when a group opens, as moto, can hold a group for one wait where others are in flight
// beside it.
//
// A queue is shared by all who read it. Groups have their own copies only with a queue
// each, behind an SNS topic: set sns, or use ARNs of SNS topics. Another group on the same
// queue is an error if this broker can see it ([ErrGroups]), and shares the messages if it
// is another program's.
//
// When a subscriber is closed, or the Subscribe context ends, no more is received. A
// receive under way is left to end by itself, since SQS hides for the visibility timeout
// what it has given to one that was cancelled; so Close may take as long as wait. What
// handlers run is waited for, at most SubscriberConfig.DrainTimeout; what nobody has begun
// is given back at once, which spends a receive.
//
// Publish sends ten messages in a request, as far as the queue's MaximumMessageSize
// allows, and returns nil if SQS has all of them. What failed for a reason that may pass is
// sent again until publish_timeout; then an error names the messages that were not taken,
// or may not have been. To a FIFO queue one request follows the other, and after one that
// failed in part none does.
//
// Throttling, lost connections, expired credentials, a signature that a wrong clock has
// spoiled (a small difference is corrected by the SDK), missing permissions and a queue
// that has vanished do not end a subscription: it logs once, tries with growing pauses, and
// goes on when it can. With create_queues it makes the queue again.
//
// Suspect are messages with a receive count other than 1.
//
// # Identity
//
// Of FIFO queues, Delivery.NativeID is the deduplication id: that which the producer has
// set, else the UUID. SQS itself takes it for five minutes. Capabilities.NativeID and
// Ordered are promised if all queues are FIFO by their names, in the URL or by queue.
//
// Standard queues give messages no id that a producer's repetition shares: the MessageId
// changes when a send is repeated. Use the UUID, or a field of the payload.
// Delivery.Coordinates are "queue/MessageId" and protect against redelivery only.
//
// The UUID of a message is the attribute _watermill_message_uuid, of whatever type, and
// empty for producers without Watermill. The other attributes are the metadata; what they
// cannot carry (more than ten, empty values, other names and characters than SQS takes,
// bytes that are no text) is packed into one more, _millpond_packed, a JSON object that
// watermill-aws leaves as it is. A payload that is empty or no text is encoded likewise.
// The envelope of SNS is taken off; raw delivery is better, since it keeps binary
// attributes small and costs no parsing.
//
// Delivery.Key is the group of the message. Delivery.Time is when SQS took it, by its
// clock. Delivery.Count is ApproximateReceiveCount, by which the redrive policy acts.
// Delivery.Undecodable is set if _millpond_packed cannot be read, or by an error,
// or a panic, of Consume.Unmarshal.
//
// The fields that group_metadata and deduplication_metadata name are not sent as
// attributes to FIFO queues and topics. Messages without a group are one group, whose order
// is kept. Ids that SQS would refuse are replaced by their SHA-256.
//
// # Limits
//
// Capabilities.DeliveryLimit is the lowest maxReceiveCount of the queues known so far:
// those in the URL, and those subscribed to. Before there is one it is not known, unless
// delivery_limit says it; Subscribe refuses a queue that allows less than that.
//
// Requests cost money. Where there is plenty, receiving and deleting take 0.2 to 0.3
// requests a message, where messages come one by one two; extensions add a tenth per
// message and three eighths of the visibility timeout. An empty queue costs one request
// per wait and subscription: 17,280 a day with 5s.
//
// With 1 in flight each message is a receive of its own. FIFO queues without high
// throughput mode do 300 requests a second.
//
// # IAM
//
// Consuming needs sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage,
// sqs:DeleteMessage and sqs:ChangeMessageVisibility. Without sqs:GetQueueAttributes it
// goes on with a visibility timeout of 30 seconds, messages of up to 256 KiB, and a
// delivery limit that is not known. Publishing needs sqs:GetQueueUrl,
// sqs:GetQueueAttributes and sqs:SendMessage, or sns:Publish. create_queues needs
// sqs:CreateQueue, and with SNS sns:CreateTopic, sns:Subscribe and sqs:SetQueueAttributes.
// Encrypted queues need kms:Decrypt, and kms:GenerateDataKey to publish.
package sqs
