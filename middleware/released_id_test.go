package middleware_test

import (
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// A database that has lost commits numbers the rows of its quarantine again. What was told to
// others of a released message, its idempotency key and the ids of its outputs, is told of no
// other one, and is told of the same one again.
func TestNumbersOfTheQuarantineAreToldToNobody(t *testing.T) {
	t.Parallel()
	type told struct{ key, output string }
	run := func(names ...string) map[string]told {
		s := newSpeaker(t)
		var keys sync.Map // by payload
		in := s.inbox(leasing(), func(c *middleware.InboxConfig) { c.Handler = "stock" })
		for _, name := range names {
			if _, err := in.Middleware(handle(func(*message.Message) error { return nil }))(message.NewMessage("", []byte(name))); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := s.store.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 10})
		if err != nil || len(rows) != len(names) {
			t.Fatalf("%d in quarantine, %v", len(rows), err)
		}
		for _, row := range rows {
			if err := s.store.Decide(t.Context(), stores.Decision{Verb: stores.VerbRelease, RowID: row.RowID}); err != nil {
				t.Fatal(err)
			}
		}
		work(t, in, func(m *message.Message) error {
			key, _ := middleware.IdempotencyKey(m.Context())
			keys.Store(string(m.Payload), key)
			return outbox.Publisher("a").Publish("t", message.NewMessageWithContext(m.Context(), "", m.Payload))
		}, func() { testenv.Eventually(t, "said", func() bool { return len(s.said()) == len(names) }) })
		all := make(map[string]told)
		for _, o := range s.said() {
			key, _ := keys.Load(string(o.Payload))
			all[string(o.Payload)] = told{key.(string), o.ID} //nolint:forcetypeassert // it ran
		}
		return all
	}
	lost, then := run("anna"), run("otto", "anna")
	if lost["anna"].key == "" || lost["anna"] != then["anna"] {
		t.Errorf("the same message was told of as %+v, and then as %+v", lost["anna"], then["anna"])
	}
	if then["otto"].key == lost["anna"].key || then["otto"].output == lost["anna"].output {
		t.Errorf("another message is told of as %+v, which was the lost one's: %+v", then["otto"], lost["anna"])
	}
}
