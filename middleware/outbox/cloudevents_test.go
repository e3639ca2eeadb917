package outbox_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/outbox"
)

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	want := message.Metadata{"name": "OrderPlaced", "ce_id": "a", "ce_source": "/orders", "ce_type": "OrderPlaced", "ce_specversion": "1.0", "content-type": "application/json"}
	events := outbox.CloudEvents{Source: "/orders", ContentType: "application/json"}
	named := func(id string) *message.Message {
		msg := message.NewMessage(id, nil)
		msg.Metadata.Set("name", "OrderPlaced")
		return msg
	}
	b := &broker{}
	p, ok := events.Publisher(each{b}).(brokers.EachPublisher)
	if !ok {
		t.Fatal("the decorated publisher answers for each message no longer")
	}
	errs := p.PublishEach(t.Context(), "orders", named("a"), message.NewMessage("untyped", nil), named("b"))
	if errs[0] != nil || !errors.Is(errs[1], brokers.ErrUnencodable) || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	same(t, "published", b.all(), []string{"a", "b"})
	if got := b.messages()[0].Metadata; !maps.Equal(got, want) {
		t.Errorf("metadata %v, want %v", got, want)
	}
	b = &broker{}
	alone := events.Publisher(b)
	if _, ok := alone.(brokers.EachPublisher); ok {
		t.Error("a publisher that answers once answers for each")
	}
	own := named("c")
	own.Metadata.Set("ce_type", "own")
	check(t, alone.Publish("orders", own))
	if err := alone.Publish("orders", message.NewMessage("untyped", nil)); !errors.Is(err, brokers.ErrUnencodable) {
		t.Error(err)
	}
	if got := b.messages()[0].Metadata["ce_type"]; got != "own" {
		t.Errorf("the message's own type became %q", got)
	}
}

// A message that is no event is a dead letter at once, and stops no other.
func TestRelayWithCloudEvents(t *testing.T) {
	t.Parallel()
	r := onSQLite(t)
	b := &broker{}
	events := outbox.CloudEvents{Source: "/orders", Type: func(_ string, msg *message.Message) string {
		if msg.UUID == "untyped" {
			return ""
		}
		return "placed"
	}}
	start(t, r.outbox, quick(one(events.Publisher(each{b}))))
	r.say("", "", "a", "untyped", "b")
	testenv.Eventually(t, "a dead letter", func() bool { return r.count("SELECT count(*) FROM millpond_outbox_failed") == 1 && r.waiting() == 0 })
	if got := b.messages(); len(got) != 2 || got[0].Metadata["ce_source"] != "/orders" {
		t.Errorf("published: %v", got)
	}
}
