package middleware

import (
	"context"
	"testing"

	"github.com/millpond-go/millpond/stores"
)

// A consumer whose messages have to wait must not stop another one's.
func TestConsumersAreHeldApart(t *testing.T) {
	t.Parallel()
	all := newHoldings(1)
	stuck, well := all.of(stores.Consumer{Handler: "stuck"}), all.of(stores.Consumer{Handler: "well"})
	release := stuck.add()
	if stuck.hasRoom() || !well.hasRoom() || all.of(stores.Consumer{Handler: "stuck"}) != stuck {
		t.Fatal("held deliveries are not counted by consumer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stuck.wait(ctx) {
		t.Error("there was room")
	}
	go release()
	if !stuck.wait(t.Context()) {
		t.Error("there was no room")
	}
}
