// Package kafka is a broker on Apache Kafka, with subscribers and publishers of its own on
// franz-go. It writes and reads the wire format of watermill-kafka, so that services on
// either understand each other.
//
// # Usage
//
//	broker, err := brokers.Open(ctx, "kafka://localhost:9092/?in_flight_per_partition=32")
//	…
//	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock", InFlight: 128})
//	publisher, err := broker.Publisher(brokers.PublisherConfig{})
//
// What a URL cannot say (TLS with certificates from elsewhere, keys made by a function,
// hooks of the client) goes into a [Config], given to [New]; [ParseURL] makes one from a
// URL to begin with. To open means to connect: wrong addresses, credentials and TLS are
// errors at once, and so is, at Subscribe, a topic that does not exist.
//
// # URL
//
// Importing the package registers the scheme kafka in the default mux:
//
//	kafka://host:port,host:port/?parameter=value&…
//
// Give each host its port. Topics and groups are arguments of Subscribe, Publish and
// SubscriberConfig. Credentials never stand in a URL: they come from the environment
// variables MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD, and are used only with the
// parameter sasl; without it, a log line says so. Parameters, all optional:
//
//	sasl                     plain, scram-sha-256 or scram-sha-512; default none
//	tls                      true or false (default)
//	tls_ca                   file with the authorities to trust, in PEM; default the system's
//	tls_cert, tls_key        files with the client's certificate and its key, in PEM
//	tls_server_name          name that the broker's certificate must have; default the host
//	client_id                default millpond
//	connect_timeout          bound of each question at start; default 10s
//
//	in_flight_per_partition  deliveries of a partition at a time; default 1
//	order                    partition, key or none; default partition with 1 in flight, else none
//	offset                   where a new group begins: oldest (default) or newest
//	protocol                 classic (default) or consumer, that of KIP-848
//	session_timeout          default 10s; with protocol=consumer the broker decides
//	rebalance_drain          how long a partition that moves waits for handlers; default 10s
//	commit_interval          default 1s
//	commit_distance          messages started from the oldest unsettled one on; default 1000
//	redelivery_delay         first pause after a plain nack, doubled up to 1s; default 10ms
//	wait_for_topic           how long Subscribe waits for a topic, such as 1m; default not at all
//	time                     whose timestamps count for Delivery.Time: broker (default) or producer
//
//	key_metadata             metadata field that is the key of a published message; default none
//	partitioner              murmur2 (default, as Kafka's clients) or sarama (as watermill-kafka)
//	max_message_bytes        largest message, and largest batch, that is sent; default 1000012
//	publish_timeout          bound of Publish while the broker does not answer; default 30s
//	create_topics            true: make topics that are missing; default false
//	partitions, replication  of topics that are made; default the broker's
//
// # Delivery semantics
//
// Each Subscribe call is a member of the group and gets the messages of its share of the
// partitions. Of each partition in_flight_per_partition messages may be unsettled, of all
// together SubscriberConfig.InFlight. With one per partition a partition's messages come
// in their order, and a nacked one keeps those behind it waiting until it is settled.
// With several, order=key still delivers one message of a key at a time, in order, and
// order=none promises no order; a message that waits for its redelivery then keeps
// nothing waiting but, with order=key, its key.
//
// A nacked message comes again inside the process, after the delay of its GiveBack, for
// as long as it is nacked: Kafka counts no deliveries and drops nothing. Nothing is lost
// by giving back.
//
// Offsets are committed every commit_interval, when partitions move, and at Close: for
// each partition the end of what is settled without a gap, so that nothing unsettled is
// ever passed over. What is settled behind a gap is written into the metadata of the
// commit, and is not delivered again by this package. A graceful restart therefore
// repeats nothing that was acked. After a crash come again, per partition: what was settled
// since the last commit, and what was in flight. A message that is held unsettled lets
// up to commit_distance others start behind it; then its partition waits.
//
// When a partition moves to another member, nothing more of it is begun, and its running
// handlers have rebalance_drain to end; then it moves all the same, their contexts end,
// and their settlement counts for nothing. The other partitions go on meanwhile. A member
// that the group has thrown out commits nothing. When the subscriber is closed, or the
// Subscribe context ends, the same holds for all partitions, with
// SubscriberConfig.DrainTimeout. What nobody had received is not marked, and goes to the
// next member. For the last commit and the leaving of the group a broker has five seconds
// more; one that hangs is left without.
//
// Suspect are the redeliveries inside the process and, after a partition was assigned,
// the messages that were there at that moment, at most commit_distance from the first on.
// A crash with more than that settled since its last commit leaves some unflagged.
//
// A broker that is away is waited for; consuming resumes by itself. A topic that was
// deleted and made again is consumed from its oldest message by the same Subscribe call,
// a second or two later, and partitions added to a topic after at most ten seconds. An
// offset that the topic no longer has leads to the oldest message that it has, never past
// one. If a broker has lost the end of a log, what has the lost offsets now is delivered:
// leader epochs tell it from what had them before.
//
// With offset=newest a group begins where the topic ends when its first member gets the
// partition, and commits that at once: nothing that comes later is skipped. Partitions
// that are added to the topic begin where they end when they are noticed; use oldest
// where nothing may be passed over.
//
// Only committed transactions of other producers are delivered. Publish sends all its
// messages together and returns nil if all replicas in sync have all of them; it is
// idempotent, so that the client's own repetitions double nothing. An error names
// the messages that were not taken, or may not have been.
//
// # Identity
//
// Kafka gives messages no id: Delivery.NativeID is empty. Coordinates are
// "topic/partition/offset"; a topic that was made again uses them again for other
// messages. The UUID of a message is the header _watermill_message_uuid, and empty for
// producers without Watermill. Headers are the metadata, byte by byte; of one that is
// there several times the last has its name and the earlier ones are name[0], name[1], ….
// Delivery.Key is the key of the record.
//
// Delivery.Time is set on topics with message.timestamp.type=LogAppendTime. On others the
// timestamp is by the producer's clock, and counts only with time=producer. Delivery.Count
// is 0: nobody counts.
//
// Any record can be read. Delivery.Undecodable is set only by an error, or a
// panic, of Consume.Unmarshal.
//
// # Limits
//
// To use several partitions at a time, SubscriberConfig.InFlight must be as many times
// larger than in_flight_per_partition.
//
// A group cannot have members of this package and of watermill-kafka at the same time,
// which know no common way of sharing partitions: stop those first, and the offsets are
// taken over.
//
// With protocol=consumer partitions that move do so a second or two after the drain, and
// the session timeout is the broker's, by default 45 s: set its
// group.consumer.session.timeout.ms. Kafka 4.3 or later is recommended.
//
// After a kill, partitions stand still for the session timeout. A handler that is still
// running when its partition has moved runs at the same time as that of the new owner,
// as with any broker; the inbox lets one of them through.
//
// Some 64 MB of messages are fetched ahead per Subscribe call, at least 256 KB per
// partition. The topic's max.message.bytes bounds messages before compression.
// Capabilities.ReplayHorizon is not known, since retention is a matter of each topic: settled
// messages come again if somebody sets the group's offsets back, for as long as the topic
// keeps them.
package kafka
