package middleware

import (
	"context"
	"fmt"
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
	handlers   map[stores.Consumer]string // which handler counts under the consumer
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

// get returns the consumer of a handler, registered for the topic. The consumer is
// returned with an error, too, as far as it is known.
func (c *consumers) get(ctx context.Context, handler, topic string) (stores.Consumer, error) {
	r := reading{handler, topic}
	c.mu.RLock()
	consumer, ok := c.registered[r]
	c.mu.RUnlock()
	if ok {
		return consumer, nil
	}
	consumer, err := c.name(handler)
	if err != nil {
		return consumer, err
	}
	_, err, _ = c.calls.Do(handler+"\x00"+topic, func() (any, error) {
		return nil, c.store.Register(ctx, stores.Registration{
			Consumer: consumer, Topic: topic, AcceptTopic: c.config.AcceptTopics,
		})
	})
	if err != nil {
		return consumer, fmt.Errorf("middleware: register consumer %s: %w", consumer, err)
	}
	c.mu.Lock()
	c.registered[r] = consumer
	c.mu.Unlock()
	return consumer, nil
}

// name finds the consumer of a handler and refuses a second handler under it.
func (c *consumers) name(handler string) (stores.Consumer, error) {
	consumer := stores.Consumer{Service: c.config.Service, Handler: handler}
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
	if other, taken := c.handlers[consumer]; taken && other != handler {
		return consumer, fmt.Errorf("%w: %q and %q both count under %s: give each its own", ErrConsumerShared, other, handler, consumer)
	}
	c.handlers[consumer] = handler
	return consumer, nil
}
