// Package amqp is a broker on RabbitMQ, by AMQP 0.9.1, with subscribers and publishers of
// its own on amqp091-go. It writes and reads the wire format of watermill-amqp, so that
// services on either understand each other.
//
// # Usage
//
//	broker, err := brokers.Open(ctx, "amqp://localhost:5672/shop?delivery_limit=10")
//	…
//	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock", InFlight: 32})
//	publisher, err := broker.Publisher(brokers.PublisherConfig{})
//
// What a URL cannot say (TLS with certificates from elsewhere, names of queues made by a
// function, more arguments of queues) goes into a [Config], given to [New]; [ParseURL]
// makes one from a URL to begin with. To open means to connect: wrong addresses,
// credentials, virtual hosts and TLS are errors at once, and so is, at Subscribe, a queue
// that is declared otherwise.
//
// # URL
//
// Importing the package registers the schemes amqp and, for TLS, amqps in the default mux:
//
//	amqp://user:password@host:port,host:port/virtual-host?parameter=value&…
//
// Of several hosts, each with its port, the first that answers is used. The virtual host
// is / if there is none; a / in its name is written %2F. Topics and groups are arguments
// of Subscribe, Publish and SubscriberConfig. Without credentials in the URL those of the
// environment variables MILLPOND_AMQP_USERNAME and MILLPOND_AMQP_PASSWORD are used, and
// without these guest's. Parameters, all optional:
//
//	connect_timeout    bound of each attempt to connect, and of Subscribe; default 10s
//	heartbeat          after three without an answer a connection is lost; default 10s
//	connection_name    default millpond
//	tls_ca             with amqps: file with the authorities to trust, in PEM; default the system's
//	tls_cert, tls_key  with amqps: files with the client's certificate and its key, in PEM
//	tls_server_name    with amqps: name that the certificate must have; default the host
//
//	preset             pubsub (default), queue or routing; see below
//	exchange           name of the exchange of preset=routing
//	exchange_type      topic (default) or direct, of that exchange
//	queue_type         quorum (default) or classic, as watermill-amqp declares them
//	delivery_limit     x-delivery-limit of quorum queues; default 20
//	declare            false: use exchanges and queues as they are; default true
//
//	retry_delays       steps of delayed redeliveries; default 1s,10s,1m,10m
//	redelivery_delay   first pause after a plain nack where the server has none, doubled up to 1s; default 10ms
//	consumer_timeout   what the server's consumer_timeout is; default 30m, as the server's
//	time               producer: timestamps of producers count for Delivery.Time; default none
//
//	publish_timeout    bound of Publish while the broker does not answer; default 30s
//	max_message_bytes  largest payload that is sent; default what the server takes
//
// # Delivery semantics
//
// The preset says what topics and groups are. With pubsub each topic is a fanout exchange
// of its name, and each group has a queue "<topic>_<group>", so that every group gets its
// own copy of what is published after its first Subscribe or SubscribeInitialize. With
// queue each topic is a queue of its name, which all subscribers share, whatever their
// groups. With routing there is one exchange; the topic of Publish is the routing key,
// that of Subscribe the binding key, which may be a pattern such as orders.*, and groups
// have queues as with pubsub. Everything is durable, and declared again on every connection.
//
// Each Subscribe call has a channel of its own with SubscriberConfig.InFlight as prefetch:
// what waits in a client is spent when the connection is lost. Messages are settled in any
// order; acks that come close together are written together, and none waits for a handler.
// With one in flight, and one Subscribe call, messages come in the order of the queue; a
// nacked one may come behind its neighbours.
//
// A message that was given back as failed counts towards the delivery limit. When it has
// failed more than delivery_limit times it goes to the queue "<queue>.dead", where it stays
// until somebody deals with it. What else counts is up to the server's version, which is
// said in the log when a subscriber is made:
//
//   - From RabbitMQ 4.3 on "not now" is free, and the queue itself delays what it gets
//     back, by the first step of retry_delays, growing with each failure up to the last.
//   - Before, every nack without a delay counts, and comes again after redelivery_delay.
//   - On every version a lost connection, a killed consumer and a restart of the broker
//     count one delivery of each message that was unsettled.
//
// A give-back with a delay that the queue cannot make by itself puts a copy into a retry
// queue, "<queue>.retry.<step>", from where it returns by itself, through the internal
// exchange "<queue>.retry"; when the broker has confirmed the copy, the message is acked. A long delay takes several steps, and up to
// twice the delay is accepted for fewer of them. That is free for "not now"; failures are
// carried along, and end at the same limit. What a copy carries is believed only of what
// comes by that exchange, to which the server lets nobody publish: the headers of producers
// change neither counts nor delays nor ids. A crash at the wrong moment doubles a message
// and never loses one. Work queues and retry queues hand their messages on at least once,
// so that neither dead letters nor delayed messages are lost when the broker is killed.
//
// When a connection is lost, a queue deleted or a message held for longer than
// consumer_timeout, the broker has taken back what was unsettled: the contexts of these
// messages end, their settlement counts for nothing, and consuming begins anew by itself,
// as soon and as long as the broker is there. When a subscriber is closed, or the
// Subscribe context ends, the intake stops, what nobody had received goes back to the
// queue, and the handlers that run have SubscriberConfig.DrainTimeout to end.
//
// Suspect are messages that are flagged redelivered, counted, or come from a retry queue. A
// dead letter that somebody has put back is a message like others.
//
// Publish sends all its messages together, 1000 at a time, and returns nil when the broker
// has confirmed each: a quorum queue has them then on a majority of its nodes. What was
// not confirmed when a connection was lost is published again, so that it may be there
// twice, with the same UUID. A message for which there is no queue is an error, which wraps
// [ErrUnroutable]: with pubsub and routing somebody must have subscribed before. With queue
// the publisher declares the queue as its subscribers do. In the first seconds after a lost
// connection such a message is tried again, since a broker that was killed may come back
// without what was declared last, until a subscriber declares it again.
//
// # Identity
//
// Delivery.NativeID is the message id, which producers may leave out; Publish sets it to the
// UUID, or to one made up for a message without, or with one of more than 255 bytes.
// There are no coordinates: a delivery tag says nothing of the message. The UUID is the
// header _watermill_message_uuid, and empty for producers without Watermill.
//
// Headers are the metadata. Of texts and bytes each byte is kept; other types become text,
// tables and lists become JSON. The server's counts are no metadata, nor are CC and
// BCC, which the broker reads itself: no field may have such a name; the history of dead letters (x-death and
// its like) is read and not published again.
//
// Delivery.Time is set only with time=producer, in whole seconds: the broker sets none.
// Delivery.Key is nil: AMQP orders by queue alone. Delivery.Count counts all deliveries,
// those before a delay as well; of classic queues, and with declare=false, nobody counts,
// and it is 0.
//
// Any message can be read. Delivery.Undecodable is set only by an error, or a
// panic, of Consume.Unmarshal.
//
// # Limits
//
// All programs that use a queue must declare it with the same parameters. A queue that is
// there, declared otherwise, cannot be changed by declaring: the error says what differs.
// A policy of the server may change limits unseen. watermill-amqp declares classic queues,
// and for its topic preset an exchange that is not durable: queue_type=classic, and
// Exchange.Durable there, let both share them. declare=false leaves all that to others.
//
// Capabilities.SettleLimit is consumer_timeout, which cannot be read from the server. The
// limit of deliveries in Capabilities is one more than delivery_limit, since the first
// delivery does not count.
//
// A quorum queue is safe about a second after it was made: RabbitMQ may lose one that is
// younger, with its messages, when its node is killed. Retry queues are used only after
// that time; for work queues, subscribe before it matters.
//
// A message that expires does so in a work queue only until its first delayed redelivery.
// Delayed copies lose the user id. Retry queues are made when they are first needed, with
// declare=false as well, stay, and are to be deleted with their work queue.
//
// RabbitMQ closes the channel over a message larger than its max_message_size; Publish
// finds out which it was. When memory or disk space is short, the broker stops reading from
// publishers: Publish then ends after publish_timeout, and its messages may still be taken.
// Consuming is not affected.
package amqp
