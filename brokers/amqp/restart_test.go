package amqp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// testBrokerIsKilled: with confirms outstanding and handlers running. What Publish has
// reported as taken comes, also to a subscriber that was there before.
func testBrokerIsKilled(t *testing.T, server *rabbitmq.Server) {
	const publishers, kills = 2, 1
	config := parse(t, server.URL())
	config.Publish.Timeout = 2 * time.Minute // a restart may take long on a busy machine
	b := newBroker(t, config)
	topic := newTopic()
	out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 64}), topic)
	p := publisher(t, b)
	var (
		mu    sync.Mutex
		taken = map[string]bool{}
		got   = map[string]bool{}
		stop  = make(chan struct{})
		calls sync.WaitGroup
	)
	for range publishers {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				batch := newMessages(100)
				if err := p.Publish(topic, batch...); err != nil {
					t.Errorf("Publish, which has time for a restart, returned %v", err)
					return
				}
				mu.Lock()
				for _, msg := range batch {
					taken[msg.UUID] = true
				}
				mu.Unlock()
			}
		})
	}
	next := func(until int) {
		for len(got) < until {
			msg, _ := receive(t, out)
			got[msg.UUID] = true
			msg.Ack()
		}
	}
	for k := range kills {
		next((k + 1) * 1000)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next(len(got) + 500)
	close(stop)
	calls.Wait()
	for uuid := range taken {
		for !got[uuid] {
			msg, _ := receive(t, out)
			got[msg.UUID] = true
			msg.Ack()
		}
	}
	t.Logf("%d messages were taken, %d came", len(taken), len(got))
}
