package middleware_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// A middleware around the inbox may call it again after the commit. What one inside has
// made of the message is then not what the second call is about.
func TestCommittedRunLeavesTheMessageAsItArrived(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*message.Message){
		"nothing":          func(*message.Message) {},
		"UUID":             func(m *message.Message) { m.UUID = "tenant-" + m.UUID },
		"payload":          func(m *message.Message) { m.Payload = []byte("opened") },
		"no payload":       func(m *message.Message) { m.Payload = nil },
		"the key's field":  func(m *message.Message) { m.Metadata.Set("event_id", "another") },
		"another metadata": func(m *message.Message) { m.Metadata = message.Metadata{"event_id": "another"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, runs := newLedger(), 0
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Keys, c.CacheSize = keys.First(keys.Metadata("event_id")).Then(keys.UUID()), -1
			})
			wrapped := in.Middleware(handle(func(m *message.Message) error {
				runs++
				change(m)
				return nil
			}))
			m := newMessage(t.Context(), "a")
			if name != "UUID" {
				m.Metadata.Set("event_id", "e1")
			}
			metadata := len(m.Metadata)
			for range 2 {
				if _, err := wrapped(m); err != nil {
					t.Fatal(err)
				}
			}
			if runs != 1 || len(store.quarantined) != 0 || m.UUID != "a" || string(m.Payload) != "payload of a" || len(m.Metadata) != metadata {
				t.Errorf("%d runs, %d in quarantine, left is %+v\n%s", runs, len(store.quarantined), m, store.story())
			}
		})
	}
}

// A middleware around the inbox has acked the message, which ends its context, and it
// cannot be run now: nobody else has it.
func TestAckAroundTheInboxIsKeptThoughNothingHasRun(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hold.Limit = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := in.Middleware(handle(func(*message.Message) error { close(begun); <-release; return fail(nil) }))(newMessage(t.Context(), "a"))
		ended <- err
	}()
	<-begun
	m := newMessage(ctx, "a")
	m.Ack()
	cancel()
	if _, err := in.Middleware(handle(fail))(m); err != nil {
		t.Error(err)
	}
	if len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonAckedEarly {
		t.Errorf("%+v\n%s", store.quarantined, store.story())
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
