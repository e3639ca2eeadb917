package brokers_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

func TestDeliveryTravelsInTheContext(t *testing.T) {
	want := brokers.Delivery{
		Topic: "orders", NativeID: "7", Coordinates: "orders/3/1042",
		Time: time.Unix(1, 0), Count: 2, Suspect: true,
	}
	type key struct{}
	ctx := brokers.WithDelivery(context.WithValue(t.Context(), key{}, "value"), want)
	ctx = context.WithoutCancel(ctx) // as the inbox does
	got, ok := brokers.DeliveryFrom(ctx)
	if !ok || got.Topic != want.Topic || got.NativeID != want.NativeID || got.Coordinates != want.Coordinates ||
		!got.Time.Equal(want.Time) || got.Count != want.Count || !got.Suspect || got.Undecodable != nil || got.Key != nil {
		t.Errorf("got %+v, %t", got, ok)
	}
	if ctx.Value(key{}) != "value" {
		t.Error("the context has lost its values")
	}
}

func TestNoDelivery(t *testing.T) {
	ctx := t.Context()
	if d, ok := brokers.DeliveryFrom(ctx); ok || d.Topic != "" {
		t.Errorf("got %+v, %t", d, ok)
	}
	if brokers.SetGiveBack(ctx, brokers.GiveBack{After: time.Second}) {
		t.Error("SetGiveBack works without a delivery")
	}
	if g := brokers.GiveBackFrom(ctx); g != (brokers.GiveBack{}) {
		t.Errorf("GiveBackFrom returned %+v", g)
	}
}

func TestLastGiveBackCounts(t *testing.T) {
	ctx := brokers.WithDelivery(t.Context(), brokers.Delivery{})
	if g := brokers.GiveBackFrom(ctx); g != (brokers.GiveBack{}) {
		t.Errorf("a new delivery carries %+v", g)
	}
	// The middleware works on a context derived from the adapter's.
	inner, cancel := context.WithCancel(ctx)
	cancel()
	for _, g := range []brokers.GiveBack{{After: time.Second, Failed: true}, {After: time.Minute}, {}} {
		if !brokers.SetGiveBack(inner, g) {
			t.Fatal("SetGiveBack does not work")
		}
		if got := brokers.GiveBackFrom(ctx); got != g {
			t.Errorf("set was %+v, the adapter reads %+v", g, got)
		}
	}
}

// TestDeliveriesAreApart: a redelivery, or a message published in a handler, has an
// answer of its own.
func TestDeliveriesAreApart(t *testing.T) {
	first := brokers.WithDelivery(t.Context(), brokers.Delivery{Count: 1})
	second := brokers.WithDelivery(first, brokers.Delivery{Count: 2})
	brokers.SetGiveBack(second, brokers.GiveBack{Failed: true})
	if g := brokers.GiveBackFrom(first); g != (brokers.GiveBack{}) {
		t.Errorf("the answer to the second delivery became one to the first: %+v", g)
	}
	if d, _ := brokers.DeliveryFrom(second); d.Count != 2 {
		t.Errorf("the second delivery is %+v", d)
	}
	if d, _ := brokers.DeliveryFrom(first); d.Count != 1 {
		t.Errorf("the first delivery is %+v", d)
	}
}

func TestGiveBackConcurrently(t *testing.T) {
	ctx := brokers.WithDelivery(t.Context(), brokers.Delivery{})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			brokers.SetGiveBack(ctx, brokers.GiveBack{After: time.Duration(i + 1)})
			if g := brokers.GiveBackFrom(ctx); g.After < 1 || g.After > 8 {
				t.Errorf("read was %+v", g)
			}
		})
	}
	group.Wait()
}
