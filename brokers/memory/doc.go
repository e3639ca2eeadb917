// Package memory is a bounded message broker inside the process, for tests, examples and programs
// that need no separate broker. It keeps the whole contract of package brokers, with the
// redeliveries, counts and limits of a real one. docs/brokers.md has the rest.
//
// Every [New] and every opened URL creates a separate, empty broker: subscribers and publishers
// must come from the same one. Nothing survives the process or [Broker.Close].
//
// Importing the package registers the scheme memory in the default mux:
//
//	memory://?capacity=10000&delivery_limit=5
//
// Parameters, all optional, are those of [Config]:
//
//	capacity          messages held per topic, such as 10000; default 1024
//	when_full         wait (default) or fail
//	delivery_limit    deliveries before a message is dead-lettered; default 0, no limit
//	redelivery_delay  pause after a plain nack, such as 50ms; default 10ms, 0s for none
//	key_metadata      metadata field that becomes Delivery.Key; default none
package memory
