package brokers_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// delivered returns a message with the context that its adapter keeps.
func delivered(ctx context.Context, d brokers.Delivery) (*message.Message, context.Context) {
	msg := message.NewMessage("1", nil)
	ctx = brokers.WithDelivery(ctx, msg, d)
	msg.SetContext(ctx)
	return msg, ctx
}

func TestDeliveryTravelsInTheContext(t *testing.T) {
	want := brokers.Delivery{
		Topic: "orders", NativeID: "7", Coordinates: "orders/3/1042",
		Time: time.Unix(1, 0), Count: 2, Suspect: true,
	}
	type key struct{}
	msg, ctx := delivered(context.WithValue(t.Context(), key{}, "value"), want)
	msg.SetContext(context.WithoutCancel(ctx)) // as the inbox does
	got, ok := brokers.DeliveryOf(msg)
	if !ok || got.Topic != want.Topic || got.NativeID != want.NativeID || got.Coordinates != want.Coordinates ||
		!got.Time.Equal(want.Time) || got.Count != want.Count || !got.Suspect || got.Undecodable != nil || got.Key != nil {
		t.Errorf("got %+v, %t", got, ok)
	}
	if msg.Context().Value(key{}) != "value" {
		t.Error("the context has lost its values")
	}
}

// Contexts travel: with messages that a handler publishes, and with copies.
func TestDeliveryBelongsToOneMessage(t *testing.T) {
	msg, ctx := delivered(t.Context(), brokers.Delivery{Count: 1, NativeID: "7"})
	published := message.NewMessageWithContext(ctx, "2", nil)
	for name, other := range map[string]*message.Message{
		"published": published, "copied": msg.CopyWithContext(), "without": message.NewMessage("3", nil),
	} {
		if d, ok := brokers.DeliveryOf(other); ok || d.NativeID != "" {
			t.Errorf("%s: got %+v, %t", name, d, ok)
		}
		if brokers.SetGiveBack(other, brokers.GiveBack{After: time.Second}) {
			t.Errorf("%s: SetGiveBack works without a delivery", name)
		}
	}
	if g := brokers.GiveBackFrom(ctx); g != (brokers.GiveBack{}) {
		t.Errorf("another message's answer became this one's: %+v", g)
	}
	if g := brokers.GiveBackFrom(t.Context()); g != (brokers.GiveBack{}) {
		t.Errorf("GiveBackFrom returned %+v", g)
	}
}

func TestLastGiveBackCounts(t *testing.T) {
	msg, ctx := delivered(t.Context(), brokers.Delivery{})
	if g := brokers.GiveBackFrom(ctx); g != (brokers.GiveBack{}) {
		t.Errorf("a new delivery carries %+v", g)
	}
	// The middleware works on a context derived from the adapter's.
	inner, cancel := context.WithCancel(ctx)
	cancel()
	msg.SetContext(inner)
	for _, g := range []brokers.GiveBack{{After: time.Second, Failed: true}, {After: time.Minute}, {}} {
		if !brokers.SetGiveBack(msg, g) {
			t.Fatal("SetGiveBack does not work")
		}
		if got := brokers.GiveBackFrom(ctx); got != g {
			t.Errorf("set was %+v, the adapter reads %+v", g, got)
		}
	}
}

// A redelivery, or a message that comes with the context of another, has an answer of its
// own.
func TestDeliveriesAreApart(t *testing.T) {
	one, first := delivered(t.Context(), brokers.Delivery{Count: 1})
	two, _ := delivered(first, brokers.Delivery{Count: 2})
	brokers.SetGiveBack(two, brokers.GiveBack{Failed: true})
	if g := brokers.GiveBackFrom(first); g != (brokers.GiveBack{}) {
		t.Errorf("the answer to the second delivery became one to the first: %+v", g)
	}
	if d, _ := brokers.DeliveryOf(two); d.Count != 2 {
		t.Errorf("the second delivery is %+v", d)
	}
	if d, _ := brokers.DeliveryOf(one); d.Count != 1 {
		t.Errorf("the first delivery is %+v", d)
	}
}

func TestGiveBackConcurrently(t *testing.T) {
	msg, ctx := delivered(t.Context(), brokers.Delivery{})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Duration(i + 1)})
			if g := brokers.GiveBackFrom(ctx); g.After < 1 || g.After > 8 {
				t.Errorf("read was %+v", g)
			}
		})
	}
	group.Wait()
}
