package memory

import "time"

// Config configures a [Broker]. The zero value is ready to use.
type Config struct {
	// Capacity is how many messages each topic holds at most.
	Capacity int `config:"capacity" default:"1024" check:"positive"`

	// FailWhenFull makes Publish return brokers.ErrFull when the topic is full. Otherwise Publish
	// waits for a place, until the message's context ends or the publisher or the broker is closed.
	FailWhenFull bool `config:"when_full" check:"wait|fail"`

	// DeliveryLimit is how many deliveries of a message to one group may fail or be lost before it
	// becomes a dead letter. Zero means no limit.
	DeliveryLimit int `config:"delivery_limit" check:"0..2147483647"`

	// RedeliveryDelay is the pause before a nacked message is redelivered if its GiveBack sets
	// none. A negative value means no pause.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"10ms"`

	// KeyMetadata names the metadata field whose value is Delivery.Key; "" leaves the key nil.
	// The key orders nothing here: a topic is one ordering unit.
	KeyMetadata string `config:"key_metadata"`
}
