// Package kafka is a broker on Apache Kafka, on franz-go. It writes and reads watermill-kafka's
// wire format. docs/brokers.md says what it promises, and why.
//
// Importing the package registers the scheme kafka in the default mux. A [Config] for [New] has
// more settings than a URL; [ParseURL] makes one from a URL.
//
//	kafka://host:port,host:port/?parameter=value&…
//
// Credentials come from MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD, and are used only
// with the parameter sasl. Parameters, all optional:
//
//	sasl                     plain, scram-sha-256 or scram-sha-512; default none
//	tls                      true or false (default)
//	tls_ca                   file with the authorities to trust, in PEM; default the system's
//	tls_cert, tls_key        files with the client's certificate and its key, in PEM
//	tls_server_name          name that the broker's certificate must have; default the host
//	client_id                default millpond
//	connect_timeout          bound of each request at the start; default 10s
//	in_flight_per_partition  deliveries of a partition at a time; default 1
//	order                    partition, key or none; default partition with 1 in flight, else none
//	offset                   where a new group begins: oldest (default) or newest
//	protocol                 classic (default) or consumer, that of KIP-848
//	session_timeout          default 10s; with protocol=consumer the broker decides
//	rebalance_drain          how long a moving partition waits for handlers; default 10s
//	commit_interval          default 1s
//	commit_distance          messages started from the oldest unsettled one on; default 1000
//	redelivery_delay         first pause after a plain nack, doubled up to 1s; default 10ms
//	wait_for_topic           how long Subscribe waits for a topic, such as 1m; default not at all
//	time                     whose timestamps count for Delivery.Time: broker (default) or producer
//	key_metadata             metadata field with the key of a published message; default none
//	partitioner              murmur2 (default, like Kafka's clients) or sarama (like watermill-kafka)
//	max_message_bytes        largest message, and largest batch, that is sent; default 1000012
//	publish_timeout          bound of Publish while the broker does not answer; default 30s
//	create_topics            true: create missing topics; default false
//	partitions, replication  of created topics; default the broker's
package kafka
