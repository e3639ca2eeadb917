package amqp_test

import (
	"errors"
	"testing"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestSubscriberWithoutItsConnectionSaysSo: the broker answers publishers all the time, and a
// connection that is lost is made again.
func TestSubscriberWithoutItsConnectionSaysSo(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b, wires, err := amqp.Tapped(t.Context(), parse(t, address))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		s := subscriber(t, b, brokers.SubscriberConfig{})
		subscribe(t, s, newTopic())
		if err := s.Receiving(); err != nil {
			t.Fatal(err)
		}
		wires.Kill(s)
		testenv.Eventually(t, "the subscriber notices that it gets nothing", func() bool { return s.Receiving() != nil })
		if err := s.Receiving(); !errors.Is(err, brokers.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("the broker answers publishers: %v", err)
		}
		wires.Revive(s)
		testenv.Eventually(t, "the subscriber has a connection again", func() bool { return s.Receiving() == nil })
	})
}
