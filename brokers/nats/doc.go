// Package nats is a broker on NATS JetStream, on nats.go. It writes and reads the wire format of
// watermill-nats' NATSMarshaler.
//
// # URL
//
// Importing the package registers the scheme nats in the default mux:
//
//	nats://host:port,host:port/?parameter=value&…
//
// Topics are subjects; groups are durable pull consumers. Credentials come from the environment
// variables MILLPOND_NATS_USERNAME and MILLPOND_NATS_PASSWORD, or from a file. Parameters, all
// optional:
//
//	credentials       file with a user's JWT and seed
//	tls               true or false (default); tls_ca, tls_cert, tls_key, tls_server_name
//	connect_timeout   bound of each request at the start; default 10s
//	create_streams    true: create missing streams; default false
//	replicas          of created streams; default 1
//
//	consumer          name of the consumer; default {group}-{topic}
//	ack_wait          time without a sign of life before a redelivery; default 30s
//	delivery_limit    deliveries of a message; default none
//	ordered           true: one unsettled message of the group at a time; default false
//	start             where a new group begins: oldest (default) or newest
//	redelivery_delay  first pause after a plain nack, doubled up to 30s; default 1s
//
//	msg_id            true: send the UUID as Nats-Msg-Id; default false
//	publish_timeout   bound of Publish while the server does not answer; default 30s
//
// # Delivery semantics
//
// A Subscribe call pulls no more than its InFlight, and sends signs of life for messages in hand,
// so that a long handler causes no redelivery. A nacked message is redelivered after its delay; the
// server counts it. After a reconnect, messages that may have been in flight are Suspect, whatever
// their count says.
//
// A message at its delivery limit stays in its stream. The server reports it once, in an advisory,
// which the stream millpond_max_deliveries keeps.
package nats
