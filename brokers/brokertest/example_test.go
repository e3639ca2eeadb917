package brokertest_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/memory"
)

// An adapter's conformance test.
func Example() {
	open := func(t testing.TB, limit int) brokers.Broker {
		t.Helper()
		broker, err := memory.New(memory.Config{Capacity: 20_000, DeliveryLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return broker
	}
	testConformance := func(t *testing.T) {
		brokertest.Run(t, brokertest.Harness{
			Open:        func(t testing.TB) brokers.Broker { return open(t, 0) },
			OpenLimited: open,
			Kill: func(_ testing.TB, _ brokers.Broker, s message.Subscriber) {
				s.(*memory.Subscriber).Abandon()
			},
			OldMessages: true,
		})
	}
	_ = testConformance
}
