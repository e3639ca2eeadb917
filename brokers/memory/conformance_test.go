package memory_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/memory"
)

// harness describes the broker to the conformance suite. There is no wire format,
// so no foreign and no undecodable messages.
func harness() brokertest.Harness {
	open := func(t testing.TB, limit int) brokers.Broker {
		broker, err := memory.New(memory.Config{Capacity: 20_000, DeliveryLimit: limit, KeyMetadata: "customer"})
		if err != nil {
			t.Fatal(err)
		}
		return broker
	}
	return brokertest.Harness{
		Open:        func(t testing.TB) brokers.Broker { return open(t, 0) },
		OpenLimited: open,
		Kill: func(_ testing.TB, _ brokers.Broker, s message.Subscriber) {
			s.(*memory.Subscriber).Abandon()
		},
		KeyMetadata: "customer",
		OldMessages: true,
	}
}

func TestConformance(t *testing.T) { brokertest.Run(t, harness()) }
