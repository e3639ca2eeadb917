package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
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

// What a handler returns is published once, however often its message comes, and also if a
// retry returns it.
func TestWhatHandlersReturnIsPublished(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		elsewhere, err := r.broker.Publisher(brokers.PublisherConfig{})
		require.NoError(t, err)
		c.RetryWorker.Concurrency = 4
		c.Relay.On, c.Relay.Publishers = true, map[string]message.Publisher{"elsewhere": elsewhere}
		svc := r.service(c)
		var failed atomic.Int32
		handle := func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "5" && failed.Add(1) < 3 {
				return nil, errors.New("not yet")
			}
			return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, write(msg, "reserved "+msg.UUID)
		}
		svc.HandleAndPublish("stock", "orders", "", "shipments", handle)
		svc.HandleAndPublish("mirror", "orders", "elsewhere", "mirrored", func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg.Copy()}, nil
		})
		svc.Handle("shipping", "shipments", func(msg *message.Message) error { return write(msg, "shipped "+string(msg.Payload)) })
		svc.Handle("mirrored", "mirrored", func(msg *message.Message) error { return write(msg, "mirrored "+msg.UUID) })
		stop := r.run(svc)
		var want []string
		for i := range 10 {
			r.publish("orders", fmt.Sprint(i))
			r.publish("orders", fmt.Sprint(i))
			want = append(want, fmt.Sprintf("reserved %d", i), fmt.Sprintf("shipped %d", i), fmt.Sprintf("mirrored %d", i))
		}
		slices.Sort(want)
		r.reach(want...)
		require.NoError(t, stop())
		require.Equal(t, want, r.effects())
	})
}

func TestUnknownDestinationIsNoticedAtTheStart(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Relay.On = true
	svc := r.service(c)
	said := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	svc.HandleAndPublish("stock", "orders", "kafka-eu", "shipments", said)
	svc.HandleAndPublish("mute", "orders", "", "", said)
	err := svc.Run(t.Context())
	require.ErrorContains(t, err, `handler "stock" publishes to the destination "kafka-eu", which no relay of this service has`)
	require.ErrorContains(t, err, `handler "mute": the topic that it publishes to is empty`)
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

// What handlers commit while the service stops is published before it has stopped.
func TestRelayPublishesWhatIsCommittedWhileTheServiceStops(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.Relay.On = true
		svc := r.service(c)
		begun, finish := make(chan struct{}), make(chan struct{})
		svc.HandleAndPublish("stock", "orders", "", "shipments", func(msg *message.Message) ([]*message.Message, error) {
			close(begun)
			<-finish
			var said []*message.Message
			for i := range 700 { // more than one read of the relay
				said = append(said, message.NewMessage(fmt.Sprintf("%04d", i), nil))
			}
			return said, nil
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		await(t, begun)
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "the service stops") }, 30*time.Second, time.Millisecond)
		close(finish)
		require.NoError(t, <-ended)
		require.Len(t, slices.Compact(r.received(r.broker, "shipments", 700)), 700)
	})
}

// A destination that does not answer keeps a service from stopping no longer than the drain
// timeout.
func TestRelayEndsWithinTheDrainTimeout(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.DrainTimeout = time.Second
	hangs := &hanging{asked: make(chan struct{})}
	c.Relay.On, c.Relay.Publishers = true, map[string]message.Publisher{"hangs": hangs}
	svc := r.service(c)
	svc.HandleAndPublish("stock", "orders", "hangs", "shipments", func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{msg.Copy()}, nil
	})
	stop := r.run(svc)
	r.publish("orders", "1")
	await(t, hangs.asked)
	before := time.Now()
	require.NoError(t, stop())
	took := time.Since(before)
	require.Greater(t, took, c.DrainTimeout/2)
	require.Less(t, took, c.DrainTimeout+15*time.Second)
	require.Contains(t, r.log.String(), "the relay has not published everything before the service stopped")
}

// With relay.external the relay deletes what handlers have committed, whatever its
// destination, and publishes nothing.
func TestRelayLeavesPublishingToAnotherProgram(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Relay.On, c.Relay.External, c.Relay.Keep = true, true, true
	c.Destinations = map[string]router.DestinationConfig{"events": {Destination: middleware.Destination{Topic: "mirrored"}}}
	svc := r.service(c)
	mirror := func(msg *message.Message) ([]*message.Message, error) { return []*message.Message{msg.Copy()}, nil }
	svc.HandleAndPublish("own", "orders", "", "shipments", mirror)
	svc.HandleAndPublish("mirror", "orders", "events", "", mirror)
	svc.Handle("shipping", "shipments", func(msg *message.Message) error { return write(msg, msg.UUID) })
	stop := r.run(svc)
	r.publish("orders", "1")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		counts, err := svc.Store().(stores.OutboxInspector).OutputCounts(context.Background(), 100, stores.OutputPending, stores.OutputFailed, stores.OutputPublished)
		assert.NoError(t, err)
		kept := 0
		for _, c := range counts {
			assert.Equal(t, stores.OutputPublished, c.State)
			kept += c.N
		}
		assert.Equal(t, 2, kept)
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, stop())
	require.Empty(t, r.effects())

	c.Destinations["events"] = router.DestinationConfig{URL: router.NewURL("lasting://")}
	_, err := router.New(t.Context(), c)
	require.ErrorContains(t, err, "destinations.events.url is lasting://, and relay.external is true, so that nothing is published to it by a relay: remove one")
}

func TestRelayTakesMessagesOutOfEnvelopes(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Relay.On, c.Relay.ForwarderTopic = true, "forwarder_topic"
	svc := r.service(c)
	svc.HandleAndPublish("stock", "orders", "", "forwarder_topic", func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("", []byte(`{"destination_topic":"shipments","uuid":"of 1"}`))}, nil
	})
	svc.Handle("shipping", "shipments", func(msg *message.Message) error { return write(msg, msg.UUID) })
	stop := r.run(svc)
	r.publish("orders", "1")
	r.reach("of 1")
	require.NoError(t, stop())
}

// hanging is a publisher that answers nobody before its message's context ends.
type hanging struct {
	once  sync.Once
	asked chan struct{}
}

func (h *hanging) Publish(_ string, messages ...*message.Message) error {
	h.once.Do(func() { close(h.asked) })
	<-messages[0].Context().Done()
	return messages[0].Context().Err()
}

func (h *hanging) Close() error { return nil }
