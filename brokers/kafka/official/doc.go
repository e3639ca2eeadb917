// Package official opens [watermill-kafka], Watermill's own Kafka adapter on sarama,
// behind the contract of package brokers: for programs that have it, have tuned it, or
// must stay on sarama. Package brokers/kafka does more, and reads and writes the same
// records; docs/brokers.md says what is not promised here.
//
//	import _ "github.com/millpond-go/millpond/brokers/kafka/official"
//
//	broker, err := brokers.Open(ctx, "kafka+watermill://kafka-1:9092,kafka-2:9092")
//
// What a program has set in OverwriteSaramaConfig it sets in Config.Sarama, its tracer in
// Config.Tracer. Those who keep their own subscribers can give them [Marshaler].
//
// Parameters of the URL, with those for TLS; credentials for SASL come from
// MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD:
//
//	tls, tls_ca, tls_cert, tls_key, tls_server_name
//	sasl               plain, scram-sha-256 or scram-sha-512. Default none
//	client_id          name in the broker's logs. Default millpond
//	connect_timeout    of each question when it is opened. Default 10s
//	offset             oldest or newest: where a new group begins. Default oldest
//	session_timeout    after which a silent member is dead. Default 10s
//	redelivery_delay   before a nacked message comes again. Default 100ms
//	time               producer: take the records' timestamps. Default broker, which is none
//	key_metadata       metadata field whose value becomes the record's key
//	max_message_bytes  of a published message. Default 1000012
//	create_topics      true: make topics that are subscribed to. Default false
//	partitions, replication  of topics that are made. Default the broker's
//
// At least once. One message of a partition is in flight, in order, and as many partitions
// beside each other as SubscriberConfig.InFlight says. A nacked message keeps its slot, and
// its partition waiting, for its delay. A rebalance waits for running handlers, whose acks
// count, with the whole group, up to sarama's Rebalance.Timeout of a minute; after that the
// message is delivered beside its handler. Undecodable records are delivered, marked.
//
// [watermill-kafka]: https://github.com/ThreeDotsLabs/watermill-kafka
package official
