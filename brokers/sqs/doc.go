// Package sqs is a broker on Amazon SQS, and SNS in front of it, on aws-sdk-go-v2. It writes and
// reads watermill-aws's wire format. docs/brokers.md says what it promises, and why.
//
// Importing the package registers the scheme sqs in the default mux. A [Config] for [New] has
// more settings than a URL; [ParseURL] makes one from a URL.
//
//	sqs://queue,queue?region=eu-central-1&parameter=value&…
//
// The queues, if any, are those that Capabilities describes. The SDK's provider chain finds
// credentials. Parameters, all optional:
//
//	region                  default what the SDK finds, such as AWS_REGION
//	endpoint                of an emulator or a VPC endpoint, such as http://127.0.0.1:9324
//	connect_timeout         bound of each request at the start; default 10s
//	queue                   name of the queue for a topic, with {topic} and {group};
//	                        default {topic}, and {topic}-{group} for SNS topics
//	sns                     prefix of the ARNs of SNS topics, such as
//	                        arn:aws:sns:eu-central-1:123456789012: topics are then SNS topics
//	delivery_limit          maxReceiveCount of all queues; default: read from each
//	create_queues           true: create missing queues, SNS topics and subscriptions,
//	                        with a dead-letter queue if delivery_limit is set
//	visibility              how long a message stays hidden without an extension; default
//	                        the queue's visibility timeout
//	wait                    how long a receive waits for messages, 1s to 20s; default 5s
//	pollers                 receives at a time, more than one only under load;
//	                        default one for ten in flight
//	linger                  how long a request waits to be filled; default 10ms
//	redelivery_delay        first pause after a plain nack, doubled up to 30s; default 1s
//	group_metadata          field with the group of FIFO messages; default MessageGroupId
//	deduplication_metadata  field with their deduplication id; default MessageDeduplicationId
//	publish_timeout         bound of Publish while the service does not answer; default 30s
package sqs
