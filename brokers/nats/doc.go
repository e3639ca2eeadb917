// Package nats is a broker on NATS JetStream, on nats.go. It writes and reads the wire format
// of watermill-nats' NATSMarshaler.
//
// # URL
//
// Importing the package registers the scheme nats in the default mux:
//
//	nats://host:port,host:port/?parameter=value&…
//
// Topics are subjects; groups are durable pull consumers. Credentials come from the
// environment variables MILLPOND_NATS_USERNAME and MILLPOND_NATS_PASSWORD, or from a file.
// Parameters, all optional:
//
//	credentials       file with a user's JWT and seed
//	tls               true or false (default); tls_ca, tls_cert, tls_key, tls_server_name
//	connect_timeout   bound of each question at start; default 10s
//	create_streams    true: make streams that are missing; default false
//	replicas          of streams that are made; default 1
//
//	consumer          name of the consumer; default {group}-{topic}
//	ack_wait          without a sign of life, before a message comes again; default 30s
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
// A Subscribe call pulls no more than its InFlight, and tells the server while a message is
// held that it is alive, so that none comes again for the time a handler takes. A nack comes
// again after its delay; the server counts it. After a new connection, messages that may
// have been in flight are Suspect, whatever their count says.
//
// A message at its delivery limit stays in its stream. The server says so once, in an
// advisory; the stream millpond_max_deliveries keeps it.
package nats
