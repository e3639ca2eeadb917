package router_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
)

// sealed is a cipher that is its own inverse, so that what is opened twice is sealed again.
func sealed(plain string) []byte {
	b := []byte(plain)
	for i := range b {
		b[i] ^= 1
	}
	return b
}

// Middlewares of Use open each message once in each attempt, because what is kept for the
// next one, and copied in the end, is what came to the first of them.
func TestMiddlewareThatOpensMessagesOpensThemOnce(t *testing.T) {
	for name, unseal := range map[string]func([]byte) []byte{
		"into a new payload": func(b []byte) []byte { return sealed(string(b)) },
		"in place":           func(b []byte) []byte { copy(b, sealed(string(b))); return b },
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, r *rig) {
				c := r.config()
				c.Inbox.DeadLetters.Topic = "dead"
				c.Handlers = map[string]router.HandlerConfig{"strict": {Retry: middleware.RetryPolicy{MaxAttempts: 2}}}
				svc := r.service(c)
				svc.Use(func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						if msg.Metadata.Get("sealed") == "" {
							return h(msg)
						}
						msg.Payload = unseal(msg.Payload)
						msg.Metadata.Set("opened", msg.Metadata.Get("opened")+"once")
						return h(msg)
					}
				})
				var runs atomic.Int32
				svc.Handle("patient", "orders", func(msg *message.Message) error {
					if runs.Add(1) < 4 {
						return errors.New("the bank does not answer")
					}
					return write(msg, "patient "+string(msg.Payload)+msg.Metadata.Get("opened"))
				})
				svc.Handle("strict", "orders", func(*message.Message) error { return errors.New("never") })
				copied := make(chan *message.Message, 1)
				subscriber, err := svc.Broker().Subscriber(brokers.SubscriberConfig{Group: "undertaker"})
				require.NoError(t, err)
				svc.Watermill().AddConsumerHandler("undertaker", "dead", subscriber, func(msg *message.Message) error {
					copied <- msg
					return nil
				})
				stop := r.run(svc)
				msg := message.NewMessage("1", sealed("pay anna "))
				msg.Metadata.Set("sealed", "yes")
				publisher, err := r.broker.Publisher(brokers.PublisherConfig{})
				require.NoError(t, err)
				require.NoError(t, publisher.Publish("orders", msg))
				r.reach("patient pay anna once")
				letter := <-copied
				require.NoError(t, stop())
				require.Equal(t, string(sealed("pay anna ")), string(letter.Payload))
				require.Empty(t, letter.Metadata.Get("opened"))
			})
		})
	}
}
