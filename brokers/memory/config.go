package memory

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

const (
	defaultCapacity        = 1024
	defaultRedeliveryDelay = 10 * time.Millisecond
)

// Config configures a [Broker]. The zero value is ready to use.
type Config struct {
	// Capacity is how many messages each topic holds at most. Zero means 1024.
	Capacity int

	// FailWhenFull makes Publish return brokers.ErrFull when the topic is full.
	// Otherwise it waits for a place until the message's context ends or the
	// publisher or the broker is closed.
	FailWhenFull bool

	// DeliveryLimit is how many deliveries of a message to one group may fail or be
	// lost before it becomes a dead letter. Zero means no limit.
	DeliveryLimit int

	// RedeliveryDelay is the pause before a nacked message comes again if its
	// GiveBack names none. Zero means 10 ms, a negative value no pause.
	RedeliveryDelay time.Duration

	// KeyMetadata names the metadata key whose value is Delivery.Key; "" leaves the
	// key nil. It orders nothing here: a topic is one ordering unit.
	KeyMetadata string
}

func (c Config) validate() error {
	var errs []error
	if c.Capacity < 0 {
		errs = append(errs, fmt.Errorf("memory: Config.Capacity is %d: use a positive number, or 0 for %d", c.Capacity, defaultCapacity))
	}
	if c.DeliveryLimit < 0 {
		errs = append(errs, fmt.Errorf("memory: Config.DeliveryLimit is %d: use a positive number, or 0 for no limit", c.DeliveryLimit))
	}
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	c.Capacity = cmp.Or(c.Capacity, defaultCapacity)
	c.RedeliveryDelay = max(cmp.Or(c.RedeliveryDelay, defaultRedeliveryDelay), 0)
}
