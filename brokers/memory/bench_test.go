package memory_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

// BenchmarkDelivery is a message published, received and acked.
func BenchmarkDelivery(b *testing.B) {
	for _, inFlight := range []int{1, 16} {
		b.Run(fmt.Sprintf("in flight %d", inFlight), func(b *testing.B) {
			broker, err := memory.New(memory.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer broker.Close()
			s, err := broker.Subscriber(brokers.SubscriberConfig{Group: "group", InFlight: inFlight})
			if err != nil {
				b.Fatal(err)
			}
			messages, err := s.Subscribe(b.Context(), "topic")
			if err != nil {
				b.Fatal(err)
			}
			p, err := broker.Publisher(brokers.PublisherConfig{})
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 256)
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				for range b.N {
					if err := p.Publish("topic", message.NewMessage("id", payload)); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			for range b.N {
				msg := <-messages
				msg.Ack()
			}
		})
	}
}
