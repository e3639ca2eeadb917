// Package official opens [watermill-kafka], Watermill's own Kafka adapter on sarama,
// behind the contract of package brokers: for programs that have it, have tuned it, or
// must stay on sarama. Package brokers/kafka is the other choice; both read and write
// the same records.
//
// # Usage
//
// Import the package and open it by its scheme, or make a [Broker] with [New]. A service
// moves between the two adapters by changing the scheme.
//
//	import _ "github.com/millpond-go/millpond/brokers/kafka/official"
//
//	broker, err := brokers.Open(ctx, "kafka+watermill://kafka-1:9092,kafka-2:9092")
//
// What a program has set in OverwriteSaramaConfig it sets in Config.Sarama, its tracer in
// Config.Tracer. Those who keep their own watermill-kafka subscribers can give them
// [Marshaler].
//
// # URL
//
// kafka+watermill://host:port,host:port/?parameter=value. A port that is left out is
// 9092. Credentials come from MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD.
//
//	tls                true: encrypt. Default false
//	tls_ca             file with the certificates of the authority, PEM
//	tls_cert, tls_key  files of the client's certificate and key, PEM
//	tls_server_name    the name that the broker's certificate has
//	sasl               plain, scram-sha-256 or scram-sha-512. Default none, and then those
//	                   variables are not used, which a log line says
//	client_id          name in the broker's logs. Default millpond
//	connect_timeout    of opening, and of questions. Default 10s
//	offset             oldest or newest: where a new group begins. Default oldest
//	session_timeout    after which a silent member is dead. Default 10s
//	rebalance_drain    how long a rebalance waits for handlers. Default 10s, less than 60s
//	commit_interval    of offsets. Default 1s
//	redelivery_delay   before a nacked message comes again. Default 100ms
//	wait_for_topic     how long Subscribe waits for a missing topic. Default not at all
//	time               producer: take the records' timestamps. Default broker, which is none
//	key_metadata       metadata field whose value becomes the record's key
//	max_message_bytes  of a published message. Default 1000012
//	create_topics      true: make topics that are missing. Default false
//	partitions         of topics that are made. Default the broker's
//	replication        of topics that are made. Default the broker's
//
// A parameter that only kafka:// has is an error that says so.
//
// # Delivery semantics
//
// At least once. A settled message's offset is committed within the commit interval, and
// at the latest when the subscriber is closed: a crash brings back what was settled
// since, a graceful restart nothing.
//
// One message of a partition is in flight at a time, in the partition's order, and
// partitions are worked on beside each other; SubscriberConfig.InFlight bounds them all.
// More than one in flight per partition needs brokers/kafka.
//
// A nacked message comes again from memory, after the delay of its GiveBack, and keeps
// what is behind it in its partition waiting. Nothing is counted, and nothing is dropped.
//
// Each Subscribe call is a member of the group. Sarama shares partitions eagerly: when a
// member joins or leaves, every member gives all of its partitions back and stands still
// until all have. Watermill-kafka by itself waits there for the running handler, or for
// ever for a message that is always nacked, and forgets the ack. Here a rebalance waits
// for running handlers for rebalance_drain, and their acks count; a message that is held
// longer is delivered again, maybe beside its first handler, whose answer then has no
// effect (but keeps its slot); a nacked one does not delay the rebalance.
//
// Delivery.Suspect is set for messages that were in their partition when it was assigned,
// and for those that come again.
//
// A record is never refused: one without Watermill's headers has an empty UUID. Only a
// Config.Consume.Unmarshaler can fail, and its message is then delivered as undecodable.
//
// Only committed transactions of other producers are delivered. With offset=newest a group
// begins where the topic ends when its first member gets the partition, and commits that
// at once.
//
// Subscriber.Close takes at most DrainTimeout, and five seconds for the last commit and
// the leaving of the group: a broker that hangs is left without.
//
// Publish sends one message at a time and waits for all replicas in sync, with
// idempotence (watermill-kafka's default is the ack of the leader).
//
// # Identity
//
// Kafka has no message ids: Delivery.NativeID is empty. Delivery.Coordinates are
// topic/partition/offset; they begin at 0 again when a topic is made anew, so use them
// as an id only with the fingerprint on. Delivery.Key is the record's key.
//
// # Limits
//
// Kafka 2.8 or later; for older set Version in Config.Sarama. No cooperative rebalancing
// and no KIP-848, which sarama does not have. No transactions of
// its own. Delivery.Time needs
// time=producer, since sarama does not say who has set a timestamp. Delivery.Count is
// unknown. A killed member's partitions stand still for the session timeout.
// Sarama's metrics start one goroutine that never ends.
//
// [watermill-kafka]: https://github.com/ThreeDotsLabs/watermill-kafka
package official
