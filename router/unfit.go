package router

import (
	"errors"
	"maps"
	"slices"

	"github.com/millpond-go/millpond/brokers"
)

// Unfit returns why a service with this configuration refuses to start on a broker: limits that
// do not fit the retry policy and the timeouts; nil if they fit. Run also knows the handlers of
// the program; Unfit checks the handlers that the configuration names, and any other.
func (c *Config) Unfit(broker brokers.Broker) error {
	f := &fitting{run: &run{wiring: &wiring{config: *c, broker: broker, inboxed: c.inboxConfig(nil)}}}
	for _, name := range append(slices.Sorted(maps.Keys(c.Handlers)), "(any other)") {
		f.settleLimit(&handler{name: name})
		f.deliveryLimit(&handler{name: name})
	}
	return errors.Join(f.errs...)
}
