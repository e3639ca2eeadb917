// Package official opens [watermill-kafka], Watermill's own Kafka adapter on sarama, behind the
// contract of package brokers. It is for programs that already use or have tuned it, or must stay
// on sarama. Package brokers/kafka does more, and reads and writes the same records.
// docs/brokers.md says what is not promised here.
//
//	import _ "github.com/millpond-go/millpond/brokers/kafka/official"
//
//	broker, err := brokers.Open(ctx, "kafka+watermill://kafka-1:9092,kafka-2:9092")
//
// Put settings of OverwriteSaramaConfig into Config.Sarama, and a tracer into Config.Tracer.
// Programs that keep their own subscribers can give them [Marshaler].
//
// Parameters of the URL, with those for TLS; credentials for SASL come from
// MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD:
//
//	tls, tls_ca, tls_cert, tls_key, tls_server_name
//	sasl               plain, scram-sha-256 or scram-sha-512. Default none
//	client_id          name in the broker's logs. Default millpond
//	connect_timeout    of each request at the start. Default 10s
//	offset             oldest or newest: where a new group begins. Default oldest
//	session_timeout    after which a silent member is dead. Default 10s
//	redelivery_delay   before a nacked message is redelivered. Default 100ms
//	time               producer: use the records' timestamps. Default broker, which is none
//	key_metadata       metadata field whose value becomes the record's key
//	max_message_bytes  of a published message. Default 1000012
//	create_topics      true: create missing topics that are subscribed to. Default false
//	partitions, replication  of created topics. Default the broker's
//
// Messages are delivered at least once. One message of a partition is in flight, in order, and at
// most SubscriberConfig.InFlight partitions are handled concurrently. A nacked message keeps its
// slot, and blocks its partition, for its delay. A rebalance stops the whole group until running
// handlers end, up to sarama's Rebalance.Timeout of a minute, and counts their acks; after that the
// message is delivered while its handler still runs. Undecodable records are delivered, marked.
//
// [watermill-kafka]: https://github.com/ThreeDotsLabs/watermill-kafka
package official
