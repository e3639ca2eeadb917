package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
	"github.com/millpond-go/millpond/stores"
)

func TestMetrics(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		rig := newRig(t, open)
		rig.inbox.Retry.MaxAttempts = 1
		r := rig.run(func(_ context.Context, msg *message.Message) error {
			if strings.HasPrefix(msg.UUID, "bad") {
				return errors.New("no")
			}
			return nil
		})
		for i := range 5 {
			r.publish(fmt.Sprint(i), "pears")
		}
		r.publish("bad-1", "pears")
		r.deliveries(1, "4")
		r.publish("4", "pears")
		r.deliveries(2, "4")
		r.deliveries(1, "bad-1")
		warm := 0
		if r.config.System == "kafka" {
			warm = 1
		}
		require.Eventually(t, func() bool { return r.points("millpond.deliveries", "")[""] == 7+warm }, 30*time.Second, 5*time.Millisecond)
		require.Equal(t, map[string]int{"completed": 5 + warm, "duplicate": 1, "failed": 1}, r.points("millpond.deliveries", "millpond.result"))
		require.Equal(t, 1, r.points("millpond.deliveries", "error.type")["transient"])
		require.Equal(t, 1, r.points("millpond.cache.hits", "")[""])
		require.Equal(t, map[string]int{"shop/stock": 7 + warm}, r.points("messaging.process.duration", "messaging.consumer.group.name"))
		require.Equal(t, 7+warm, r.points("messaging.client.consumed.messages", "")[""])
		require.Equal(t, 7, r.points("messaging.client.sent.messages", "")[""])
		require.Equal(t, 6+warm, r.points("millpond.handler.duration", "")[""])
		require.Equal(t, 6+warm, r.points("millpond.transaction.duration", "")[""])
		require.GreaterOrEqual(t, r.points("millpond.claim.duration", "")[""], 6+warm)
		require.Equal(t, 0, r.points("millpond.deliveries.in_flight", "")[""])
	})
}

// Whatever messages say, the values of attributes of metrics are few.
func TestLabelsAreBounded(t *testing.T) {
	rig := newRig(t, both["memory"])
	tel, err := telemetry.New(rig.config)
	require.NoError(t, err)
	defer tel.Close()
	for i := range 5000 {
		id := fmt.Sprintf("canary-%d", i)
		topic, key := "tenant.canary-"+fmt.Sprint(i), stores.Consumer{Service: "shop", Handler: "stock"}
		ctx := tel.DeliveryStart(context.Background(), middleware.DeliveryStart{Consumer: key, Topic: topic, Message: message.NewMessage(id, nil)})
		tel.ClaimEnd(tel.ClaimStart(ctx, stores.Claim{}), stores.Verdict{}, errors.New(id))
		tel.HandlerEnd(ctx, 1, errors.New(id))
		tel.DeliveryEnd(ctx, middleware.DeliveryEnd{
			Result: middleware.ResultParked, Class: stores.Class(id), Err: errors.New(id), ID: []byte(id), Attempts: i,
		})
		require.NoError(t, tel.Publisher(discard{}).Publish(topic, message.NewMessage(id, nil)))
	}
	for _, m := range rig.metrics() {
		sets := attributesOf(m)
		require.Less(t, len(sets), 20, m.Name)
		for _, set := range sets {
			for _, a := range set.ToSlice() {
				require.NotContains(t, a.Value.String(), "canary", m.Name)
			}
		}
	}
	require.Equal(t, map[string]int{"_OTHER": 5000}, rig.points("millpond.deliveries", "error.type"))
}

// With a template the kinds of topics are a label.
func TestDestinationTemplate(t *testing.T) {
	rig := newRig(t, both["memory"])
	rig.config.DestinationTemplate = func(string) string { return "orders-{id}" }
	r := rig.run(func(context.Context, *message.Message) error { return nil })
	r.publish("1", "pears")
	require.Eventually(t, func() bool {
		return r.points("messaging.process.duration", "messaging.destination.template")["orders-{id}"] == 1
	}, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, 1, r.points("messaging.client.sent.messages", "messaging.destination.template")["orders-{id}"])
	for _, s := range r.spans.Ended() {
		if text(s, "messaging.destination.name") == r.topic {
			require.Contains(t, s.Name(), "orders-{id}")
		}
	}
}

// A function for kinds that panics costs the kind, and neither message nor metric.
func TestDestinationTemplateThatPanics(t *testing.T) {
	rig := newRig(t, both["memory"])
	rig.config.DestinationTemplate = func(string) string { panic("no such topic") }
	r := rig.run(func(context.Context, *message.Message) error { return nil })
	r.publish("1", "pears")
	require.Eventually(t, func() bool {
		return r.points("messaging.process.duration", "messaging.destination.template")["_OTHER"] == 1
	}, 30*time.Second, 5*time.Millisecond)
}

type pool struct{}

func (pool) PoolUse() stores.PoolUse {
	return stores.PoolUse{InUse: 3, Idle: 2, Waits: 7, Waited: 1500 * time.Millisecond}
}

func TestConnections(t *testing.T) {
	rig := newRig(t, both["memory"])
	rig.config.Store = pool{}
	tel, err := telemetry.New(rig.config)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"used": 3, "idle": 2}, rig.points("millpond.store.connections", "millpond.connection.state"))
	require.Equal(t, 7, rig.points("millpond.store.connection.waits", "")[""])
	require.InDelta(t, 1.5, rig.value("millpond.store.connection.wait_time"), 1e-9)
	require.NoError(t, tel.Close())
	require.Empty(t, rig.points("millpond.store.connections", ""), "Close ends it")
}

func TestIntakeAndSkips(t *testing.T) {
	rig := newRig(t, both["memory"])
	tel, err := telemetry.New(rig.config)
	require.NoError(t, err)
	defer tel.Close()
	tel.IntakePaused(stores.ErrUnavailable)
	tel.IntakeResumed(time.Second)
	tel.RetrySkipped(stores.Consumer{Service: "shop", Handler: "stock"}, middleware.SkipInFlight, 3)
	require.Equal(t, 1, rig.points("millpond.intake.pauses", "")[""])
	require.Equal(t, map[string]int{"in_flight": 3}, rig.points("millpond.retries.skipped", "millpond.skip_reason"))
}

type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }
