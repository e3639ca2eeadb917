package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/millpond-go/millpond/stores"
)

// consumers turns handlers of the router into registered consumers.
type consumers struct {
	store  stores.Registry
	config InboxConfig

	mu         sync.RWMutex
	registered map[reading]stores.Consumer
	handlers   map[stores.Consumer]string // the handler that has the consumer
	last       *reading                   // the last one registered; forget may have removed it
	calls      singleflight.Group         // deliveries that arrive together register once
}

// reading is a handler and a topic it reads.
type reading struct{ handler, topic string }

func newConsumers(store stores.Registry, c InboxConfig) *consumers {
	return &consumers{
		store: store, config: c,
		registered: make(map[reading]stores.Consumer),
		handlers:   make(map[stores.Consumer]string),
	}
}

// known reports whether the handler is registered for the topic.
func (c *consumers) known(handler, topic string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.registered[reading{handler, topic}]
	return ok
}

// name returns the consumer of a handler and refuses a second handler under it. With an error it
// returns as much of the consumer as is known.
func (c *consumers) name(handler, topic string) (stores.Consumer, error) {
	c.mu.RLock()
	consumer, ok := c.registered[reading{handler, topic}]
	c.mu.RUnlock()
	if ok {
		return consumer, nil
	}
	consumer = stores.Consumer{Service: c.config.Service, Handler: handler}
	if before, renamed := c.config.Renamed[handler]; renamed {
		consumer.Handler = before
	}
	if c.config.Handler != "" {
		consumer.Handler = c.config.Handler
	}
	if consumer.Handler == "" {
		return consumer, ErrNoHandlerName
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	other, taken := c.handlers[consumer]
	if taken && (other == "" || handler == "") { // without a router there is no name to compare
		handler = cmp.Or(handler, other)
		other = handler
	}
	if taken && other != handler {
		return consumer, fmt.Errorf("%w: %q and %q both count under %s: give each its own", ErrConsumerShared, other, handler, consumer)
	}
	c.handlers[consumer] = handler
	return consumer, nil
}

// forget makes every consumer register anew, because the tables were gone.
func (c *consumers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.registered)
}

// again registers all consumers anew. A consumer whose registration fails is forgotten until its
// next delivery.
func (c *consumers) again(ctx context.Context) (err error) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.registered))
	clear(c.registered)
	c.mu.Unlock()
	for _, r := range all {
		err = errors.Join(err, c.register(ctx, r.handler, r.topic))
	}
	return err
}

// register registers the consumer of a handler for a topic.
func (c *consumers) register(ctx context.Context, handler, topic string) error {
	consumer, err := c.name(handler, topic)
	if err != nil {
		return err
	}
	_, err, _ = c.calls.Do(handler+"\x00"+topic, func() (any, error) {
		return nil, c.store.Register(ctx, stores.Registration{
			Consumer: consumer, Topic: topic, AcceptTopic: c.config.AcceptTopics,
		})
	})
	if err != nil {
		return fmt.Errorf("middleware: register consumer %s: %w", consumer, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = &reading{handler, topic}
	c.registered[*c.last] = consumer
	return nil
}

// recent returns a registered consumer, and registers it again if the tables were gone meanwhile.
// known is false if none was ever registered.
func (c *consumers) recent(ctx context.Context) (consumer stores.Consumer, known bool, err error) {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	if last == nil {
		return consumer, false, nil
	}
	if !c.known(last.handler, last.topic) {
		err = c.register(ctx, last.handler, last.topic)
	}
	if err == nil {
		consumer, err = c.name(last.handler, last.topic)
	}
	return consumer, true, err
}
