package router_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/router"
)

// onEveryBroker runs a test with each broker's URL. Nothing else differs.
func onEveryBroker(t *testing.T, test func(t *testing.T, url router.URL)) {
	t.Run("memory", func(t *testing.T) { test(t, "memory://") })
	for name, scheme := range map[string]string{"kafka": "kafka", "kafka through watermill-kafka": "kafka+watermill"} {
		t.Run(name, func(t *testing.T) {
			test(t, router.URL(scheme+"://"+strings.Join(testenv.Kafka(t), ",")+"/?create_topics=true"))
		})
	}
}

// file is a service's configuration, as a file has it.
func (r *rig) file(broker router.URL) string {
	return fmt.Sprintf(`
service: shop
broker: {url: %q, group: %q}
store: {url: %q, migrate: true}
retry: {backoff_min: 10ms}
retry_worker: {poll_interval: 20ms}
`, string(broker), uuid.NewString(), r.store)
}

func TestOneURLChangesTheBroker(t *testing.T) {
	onEveryBroker(t, func(t *testing.T, url router.URL) {
		r := newRig(t)
		c, err := read(r.file(url))
		require.NoError(t, err)
		c.Program = router.Program{Logger: r.config().Program.Logger, NoSignals: true}
		svc := r.service(c)
		topic := "orders-" + uuid.NewString()
		for i := range 20 { // each twice
			require.NoError(t, svc.Publisher().Publish(topic, message.NewMessage(fmt.Sprint(i%10), nil)))
		}
		var failed atomic.Bool
		svc.Handle("stock", topic, func(msg *message.Message) error {
			if msg.UUID == "3" && !failed.Swap(true) {
				return errors.New("not yet")
			}
			return write(msg, "stock "+msg.UUID)
		})
		svc.Handle("mail", topic, func(msg *message.Message) error { return write(msg, "mail "+msg.UUID) })
		stop := r.run(svc)
		var want []string
		for _, name := range []string{"mail ", "stock "} {
			for i := range 10 {
				want = append(want, name+fmt.Sprint(i))
			}
		}
		r.reach(want...)
		require.NoError(t, stop())
		require.Equal(t, want, r.effects())
	})
}

// What was rolled back when a service stopped comes again to the next one, and what was
// committed does not.
func TestDrainOnKafka(t *testing.T) {
	r := newRig(t)
	c, err := read(r.file(router.URL("kafka://" + strings.Join(testenv.Kafka(t), ",") + "/?create_topics=true")))
	require.NoError(t, err)
	c.Program = router.Program{Logger: r.config().Program.Logger, NoSignals: true}
	c.DrainTimeout = time.Second
	c.Retry.MaxAttempts = 1
	topic := "orders-" + uuid.NewString()
	svc := r.service(c)
	require.NoError(t, svc.Publisher().Publish(topic, message.NewMessage("1", nil), message.NewMessage("2", nil)))
	begun := make(chan struct{})
	svc.Handle("stock", topic, func(msg *message.Message) error {
		err := write(msg, msg.UUID)
		if msg.UUID == "2" {
			close(begun)
			<-msg.Context().Done()
		}
		return err
	})
	stop := r.run(svc)
	await(t, begun)
	before := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(before), 10*time.Second)
	require.Equal(t, []string{"1"}, r.effects())

	svc = r.service(c)
	var got []string
	svc.Handle("stock", topic, func(msg *message.Message) error {
		got = append(got, msg.UUID)
		return write(msg, msg.UUID)
	})
	stop = r.run(svc)
	r.reach("1", "2")
	require.NoError(t, stop())
	require.Equal(t, []string{"2"}, got, "the first was acked")
}
