// Package amqp is a broker on RabbitMQ, over AMQP 0.9.1, on amqp091-go. It writes and reads
// watermill-amqp's wire format. docs/brokers.md says what it promises, and why.
//
// Importing the package registers the schemes amqp and, for TLS, amqps in the default mux. A
// [Config] for [New] has more settings than a URL; [ParseURL] makes one from a URL.
//
//	amqp://user:password@host:port,host:port/virtual-host?parameter=value&…
//
// Of several hosts the first that answers is used. Without a virtual host it is /; a / in its name
// is written %2F. Without credentials those in MILLPOND_AMQP_USERNAME and MILLPOND_AMQP_PASSWORD
// are used, and without these guest's. Parameters, all optional:
//
//	connect_timeout    bound of each attempt to connect, and of Subscribe; default 10s
//	heartbeat          after three without an answer a connection is lost; default 10s
//	connection_name    default millpond
//	tls_ca             with amqps: file with the authorities to trust, in PEM; default the system's
//	tls_cert, tls_key  with amqps: files with the client's certificate and its key, in PEM
//	tls_server_name    with amqps: name that the certificate must have; default the host
//	preset             pubsub (default), queue or routing; see below
//	exchange           name of the exchange of preset=routing
//	exchange_type      topic (default) or direct, of that exchange
//	queue_type         quorum (default), or classic as watermill-amqp declares
//	delivery_limit     x-delivery-limit of quorum queues; default 20
//	declare            false: use existing exchanges and queues; default true
//	retry_delays       steps of delayed redeliveries; default 1s,10s,1m,10m
//	redelivery_delay   first pause after a plain nack where the server has none, doubled up to 1s; default 10ms
//	consumer_timeout   the server's consumer_timeout; default 30m, as the server's
//	time               producer: timestamps of producers count for Delivery.Time; default none
//	publish_timeout    bound of Publish while the broker does not answer; default 30s
//	max_message_bytes  largest payload that is sent; default the server's limit
package amqp
