package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// say publishes a message in the transaction of a handler.
func say(store stores.Store, msg *message.Message, topic, id string) error {
	out := message.NewMessage(id, nil)
	out.SetContext(msg.Context())
	switch s := store.(type) {
	case *sqlite.Store:
		tx, _ := sqlite.TxFromContext(msg.Context())
		return sqlite.NewPublisher(tx, s, stores.PublisherConfig{}).Publish(topic, out)
	case *postgres.Store:
		tx, _ := postgres.TxFromContext(msg.Context())
		return postgres.NewPublisher(tx, s, stores.PublisherConfig{}).Publish(topic, out)
	}
	return fmt.Errorf("a %T", store)
}

func TestRelayOfAServicePublishesWhatItsHandlersHaveWritten(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.Relay.On, c.Relay.PollInterval = true, 20*time.Millisecond
		c.HTTP.Listen = "127.0.0.1:0"
		svc := r.service(c)
		svc.Handle("stock", "orders", func(msg *message.Message) error { return say(svc.Store(), msg, "shipments", "of "+msg.UUID) })
		svc.Handle("shipping", "shipments", func(msg *message.Message) error { return write(msg, msg.UUID) })
		stop := r.run(svc)
		var want []string
		for i := range 10 {
			r.publish("orders", fmt.Sprint(i))
			want = append(want, fmt.Sprintf("of %d", i))
		}
		r.reach(want...)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, body := get(t, svc, "/readyz")
			assert.Regexp(t, `relay: ok, \d+ messages wait, the oldest for \d+s, and 0 are dead letters\n`, body)
		}, 30*time.Second, 10*time.Millisecond)
		require.NoError(t, stop())
		require.Equal(t, want, r.effects())
	})
}

func TestRelayNeedsNoHandlers(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Relay.On = true
	stop := r.run(r.service(c))
	require.NoError(t, stop())

	c.Relay.On = false
	require.ErrorContains(t, r.service(c).Run(t.Context()), "there are no handlers")

	_, err := router.ReadConfig(nil, "", []string{
		"MILLPOND_SERVICE=a", "MILLPOND_BROKER_URL=memory://", "MILLPOND_STORE_URL=sqlite://a.db", "MILLPOND_RELAY_LEASE_TTL=10s", "MILLPOND_RELAY_ALARM_SIZE=-1",
	})
	require.ErrorContains(t, err, "relay.lease_ttl is 10s: it must be longer than relay.publish_timeout, 20s")
	require.ErrorContains(t, err, "relay.alarm_size")
}
