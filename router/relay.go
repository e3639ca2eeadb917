package router

import (
	"fmt"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// relayConnections are those that a relay takes of the store: to read, to write down what was
// published, to renew its leases, and to count.
const relayConnections = 4

// makeRelay makes the relay if it is on.
func (r *run) makeRelay() error {
	c := r.config.Relay.Config
	if !r.config.Relay.On {
		return nil
	}
	store, ok := r.store.(stores.Outbox)
	if !ok {
		return fmt.Errorf("router: relay.on is true, and the store, a %T, has no outbox: set it to false", r.store)
	}
	publishers := map[string]message.Publisher{"": r.publisher}
	maps.Copy(publishers, c.Publishers)
	c.Publishers, c.DrainTimeout = publishers, r.config.DrainTimeout
	if c.Codec == nil {
		c.Codec = r.inboxed.Keep.Codec
	}
	if c.Logger == nil {
		c.Logger = r.log
	}
	if hook, ok := r.telemetry.Hook.(outbox.Hook); ok && c.Hook == nil {
		c.Hook = hook
	}
	var err error
	if r.relay, err = outbox.New(store, c); err != nil {
		return fmt.Errorf("router: relay: %w", err)
	}
	return nil
}

// backlog says what the relay has to do, for /readyz.
func (r *run) backlog() string {
	waiting, failed, oldest, more := 0, 0, time.Duration(0), ""
	for _, c := range r.relay.Backlog() {
		if c.State == stores.OutputFailed {
			failed += c.N
			continue
		}
		waiting, oldest = waiting+c.N, max(oldest, c.Age)
		if c.More {
			more = "+"
		}
	}
	return fmt.Sprintf("ok, %d%s messages wait, the oldest for %s, and %d are dead letters", waiting, more, oldest.Round(time.Second), failed)
}
