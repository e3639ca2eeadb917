package keys_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/keys"
)

func newMessage(uuid, payload string, metadata ...string) *message.Message {
	m := message.NewMessage(uuid, []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata.Set(metadata[i], metadata[i+1])
	}
	return m
}

func TestLinks(t *testing.T) {
	t.Parallel()
	m := newMessage("0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11", `{"order":{"id":"o-1","line":7,"big":12345678901234567890}}`, "event_id", "e-1")
	m.SetContext(brokers.WithDelivery(t.Context(), brokers.Delivery{
		Topic: "orders", NativeID: "n-1", Coordinates: "orders/3/1042", Key: []byte("k-1"),
	}))
	for _, test := range []struct {
		link keys.Link
		want string
	}{
		{keys.UUID(), "u:0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11"},
		{keys.Metadata("event_id"), "h:e-1"},
		{keys.Metadata("missing"), ""},
		{keys.Payload("order", "id"), "p:o-1"},
		{keys.Payload("order", "line"), "q:7"},
		{keys.Payload("order", "big"), "q:12345678901234567890"},
		{keys.Payload("order"), ""},
		{keys.Payload("nothing", "here"), ""},
		{keys.Native(), "n:n-1"},
		{keys.BrokerKey(), "k:k-1"},
		{keys.Coordinates(), "o:orders/3/1042"},
		{keys.Func("mine", func(m *message.Message) string { return "f" + m.UUID[:2] }), "f:f0c"},
	} {
		id, source, err := keys.First(test.link).ID(m, 255)
		if test.want == "" {
			if !errors.Is(err, keys.ErrNoKey) {
				t.Errorf("%s: %q, %v", source, id, err)
			}
			continue
		}
		if got := keys.Format(id); err != nil || got != test.want {
			t.Errorf("%s: %q, want %q (%v)", source, got, test.want, err)
		}
	}
}

func TestNativeWithoutDeliveryFactsIsNoKey(t *testing.T) {
	t.Parallel()
	for _, link := range []keys.Link{keys.Native(), keys.Coordinates(), keys.BrokerKey(), keys.UUID()} {
		if _, _, err := keys.First(link).ID(newMessage("", ""), 255); !errors.Is(err, keys.ErrNoKey) {
			t.Error(err)
		}
	}
}

func TestCanonicalUUIDTakes18Bytes(t *testing.T) {
	t.Parallel()
	chain := keys.First(keys.UUID())
	for uuid, length := range map[string]int{
		"0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11": 18,
		"0C2F8D6E-3A58-4A52-9C1C-6B6D0A4F7C11": 38, // another id: bytes are what counts
		"0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c1g": 38,
		"0c2f8d6e+3a58-4a52-9c1c-6b6d0a4f7c11": 38,
	} {
		if id, _, _ := chain.ID(newMessage(uuid, ""), 255); len(id) != length {
			t.Errorf("%s: %d bytes", uuid, len(id))
		}
	}
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	if _, _, err := keys.First(keys.UUID()).ID(newMessage(long, ""), 255); !errors.Is(err, keys.ErrTooLong) {
		t.Error(err)
	}
	scoped := keys.First(keys.UUID()).Scoped(keys.Tenant("tenant"))
	if _, _, err := scoped.ID(newMessage("a", "", "tenant", long+long), 255); !errors.Is(err, keys.ErrTooLong) {
		t.Error(err)
	}
}

func TestChainTakesTheFirstLinkThatFinds(t *testing.T) {
	t.Parallel()
	first := keys.First(keys.Metadata("event_id"))
	both := first.Then(keys.UUID())
	if _, _, err := first.ID(newMessage("u-1", ""), 255); !errors.Is(err, keys.ErrNoKey) {
		t.Errorf("Then changed the chain it was called on: %v", err)
	}
	id, source, err := both.ID(newMessage("u-1", ""), 255)
	if err != nil || string(id) != "u:u-1" || source != "uuid" {
		t.Error(string(id), source, err)
	}
	if both.NeedsFingerprint() || !both.Then(keys.Coordinates()).NeedsFingerprint() {
		t.Error("NeedsFingerprint is wrong")
	}
}

// Two different (scope, id) pairs must never become one id: that would be a message
// lost as a duplicate of another.
func TestIDsAreInjective(t *testing.T) {
	t.Parallel()
	chain := keys.First(keys.Metadata("id")).Then(keys.UUID()).Scoped(keys.Tenant("tenant"), keys.EventType("type"))
	nasty := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'A', ' ', ':', '|', '#', '1', '2', 'h', 'u', 'c', 'e', 0, 'é'}), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (*message.Message, [4]string) {
			parts := [4]string{nasty.Draw(t, name+" tenant"), nasty.Draw(t, name+" type"), nasty.Draw(t, name+" id"), nasty.Draw(t, name+" uuid")}
			key := parts
			if parts[2] != "" {
				key[3] = "" // the header wins
			}
			return newMessage(parts[3], "", "tenant", parts[0], "type", parts[1], "id", parts[2]), key
		}
		a, keyA := draw("a")
		b, keyB := draw("b")
		idA, _, errA := chain.ID(a, 255)
		idB, _, errB := chain.ID(b, 255)
		if errA != nil || errB != nil {
			return
		}
		if bytes.Equal(idA, idB) != (keyA == keyB) {
			t.Fatalf("%q and %q have the ids %q and %q", keyA, keyB, idA, idB)
		}
	})
}

func FuzzFormat(f *testing.F) {
	f.Add([]byte("c3:abc|u:x"))
	f.Add([]byte("u#0123456789abcdef"))
	f.Add([]byte("c99999999999999999999:|"))
	f.Fuzz(func(_ *testing.T, id []byte) { keys.Format(id) }) // any bytes may be in a table
}
