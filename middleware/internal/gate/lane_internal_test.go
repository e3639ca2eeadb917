package gate

import (
	"context"
	"testing"
)

// A consumer whose messages have to wait must not stop another one's.
func TestLanesAreHeldApart(t *testing.T) {
	t.Parallel()
	g := New(quiet(Config{Max: 1}))
	stuck, well := g.Lane(), g.Lane()
	stuck.hold()
	if stuck.hasRoom() || !well.hasRoom() {
		t.Fatal("held deliveries are not counted by lane")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stuck.wait(ctx) {
		t.Error("there was room")
	}
	go stuck.release()
	if !stuck.wait(t.Context()) {
		t.Error("there was no room")
	}
}
