package storetest

import (
	"context"
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// publishes is a handler with an effect that publishes to a destination, and then returns what then
// returns.
func (b *bench) publishes(destination, topic string, payload []byte, then func() error) message.HandlerFunc {
	to := outbox.Publisher(destination)
	return b.handler(func(ctx context.Context, m *message.Message) error {
		if err := b.h.Write(ctx, Effect{Key: m.UUID, Label: "first", Run: 1}); err != nil {
			return err
		}
		if err := to.Publish(topic, message.NewMessageWithContext(ctx, "of "+m.UUID, payload)); err != nil {
			return err
		}
		return then()
	})
}

func (b *bench) outputsThroughInbox() {
	store, waiting := b.openBoth()
	in := b.service(store, func(c *middleware.InboxConfig) { c.Outputs = &middleware.Outputs{} })
	runs := 0
	h := in.Middleware(b.publishes("kafka", "t", []byte("p"), func() error {
		if runs++; runs == 1 {
			return errHandler
		}
		return nil
	}))
	msg := message.NewMessage("twice", []byte("payload"))
	for want := range 4 {
		a := b.deliver(h, msg)
		if got := b.said("of twice"); got != min(want, 1) || a.acked != (want > 0) {
			b.tb.Errorf("delivery %d: %d outputs, acked: %v (%v)", want+1, got, a.acked, a.err)
		}
	}
	if o := b.waiting(waiting, nil, "of twice"); len(o) == 1 && (o[0].Destination != "kafka" || o[0].Topic != "t" || o[0].Metadata[middleware.MetadataCausationID] != "twice") {
		b.tb.Errorf("%+v", o[0])
	}
}

// outputsRefused: nothing that nobody can publish is committed.
func (b *bench) outputsRefused() {
	store, waiting := b.openBoth()
	in := b.service(store, func(c *middleware.InboxConfig) {
		c.Outputs = &middleware.Outputs{Destinations: map[string]middleware.Destination{"kafka": {MaxBytes: 1000, Topics: []string{"t"}}}}
	})
	for name, bad := range map[string]struct {
		destination, topic string
		payload            []byte
		want               error
	}{
		"no topic":               {"kafka", "", nil, stores.ErrInvalidOutput},
		"an unknown destination": {"amqp", "t", nil, middleware.ErrUnknownDestination},
		"an unknown topic":       {"kafka", "u", nil, middleware.ErrUnknownTopic},
		"too large":              {"kafka", "t", make([]byte, 1000), middleware.ErrOutputTooLarge},
	} {
		var said error
		honest := b.publishes(bad.destination, bad.topic, bad.payload, func() error { return nil })
		h := in.Middleware(func(m *message.Message) ([]*message.Message, error) {
			_, said = honest(m)
			return nil, said
		})
		msg := message.NewMessage(strings.ReplaceAll(name, " ", "-"), []byte("payload"))
		a := b.deliver(h, msg)
		if f := b.failure(string(messageKey(b.tb, msg).ID)); !a.acked || !errors.Is(said, bad.want) || f.state.Status != stores.StatusFailed || f.state.Class != stores.ClassOutputs {
			b.tb.Errorf("%s: the handler is told %v, want %v; acked: %v; kept as %+v", name, said, bad.want, a.acked, f)
		}
		if len(b.effects(msg.UUID)) > 0 {
			b.tb.Errorf("%s: the attempt was committed", name)
		}
	}
	b.waiting(waiting, nil)
}
