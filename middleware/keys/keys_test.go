package keys_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

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
	m.SetContext(brokers.WithDelivery(t.Context(), m, brokers.Delivery{
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
		"-c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11": 38,
		"0c2f8d6e-3a58-4a52-9c1c-6b-6d0a4f7c1": 38, // a fifth dash
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
	// Quarantine tells messages apart by it: it must be whole and within its scopes.
	for _, tenant := range []string{"acme", "umbrella"} {
		id, source, err := scoped.ID(newMessage(long, "", "tenant", tenant), 255)
		if want := "c=" + tenant + " u:" + long; keys.Format(id) != want || source != "uuid" || !errors.Is(err, keys.ErrTooLong) {
			t.Errorf("%s: %q from %s, want %q (%v)", tenant, id, source, want, err)
		}
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

// jsonText is a JSON string or number in the pieces that it was drawn in.
type jsonText struct {
	token string
	units []rune // what it says: UTF-16 units, and 1<<16 + b for a byte b that is not UTF-8
	exact bool   // what it says is Unicode text or a number, so the id must not depend on the spelling
}

// drawJSON draws a payload field, often one that a JSON decoder replaces parts of.
func drawJSON(t *rapid.T) jsonText {
	if number := rapid.SampledFrom([]string{"", "", "", "1", "1.0"}).Draw(t, "number"); number != "" {
		return jsonText{number, append([]rune{-1}, []rune(number)...), true}
	}
	text := func(raw, says string) jsonText {
		var units []rune
		for _, u := range utf16.Encode([]rune(says)) {
			units = append(units, rune(u))
		}
		return jsonText{token: raw, units: units}
	}
	pieces := rapid.SliceOfN(rapid.SampledFrom([]jsonText{
		text("a", "a"), text(`\u0061`, "a"), text("1", "1"), text("ud800", "ud800"), text(`\\`, `\`), text(`\"`, `"`),
		text("\ufffd", "\ufffd"), text(`\uFFFD`, "\ufffd"), text("\U00010000", "\U00010000"), text(`\ud800\uDC00`, "\U00010000"),
		{token: "\xff", units: []rune{1<<16 + 0xff}},
		{token: "\xfe", units: []rune{1<<16 + 0xfe}},
		{token: `\ud800`, units: []rune{0xd800}},
		{token: `\uDFFF`, units: []rune{0xdfff}},
	}), 0, 3).Draw(t, "text")
	whole := jsonText{exact: true}
	var raw strings.Builder
	var units []uint16
	for _, p := range pieces {
		raw.WriteString(p.token)
		whole.units = append(whole.units, p.units...)
	}
	for _, u := range whole.units {
		whole.exact = whole.exact && u < 1<<16
		units = append(units, uint16(u))
	}
	whole.exact = whole.exact && slices.Equal(utf16.Encode(utf16.Decode(units)), units) // no lone surrogates
	whole.token = `"` + raw.String() + `"`
	return whole
}

// Two different (scope, link, id) triples must never become one id: that would be a
// message lost as a duplicate of another.
func TestIDsAreInjective(t *testing.T) {
	t.Parallel()
	metadata := func(field string) func(*message.Message) string {
		return func(m *message.Message) string { return m.Metadata.Get(field) }
	}
	fields := []string{"h0", "h1", "f0", "f1", "f2"}
	chain := keys.First(keys.Metadata("h0")).Then(keys.Metadata("h1")).
		Then(keys.Func("f", metadata("f0"))).Then(keys.Func("f", metadata("f1"))).Then(keys.Func("f", metadata("f2"))).
		Then(keys.Payload("a b")).Then(keys.Payload("a", "b")).Then(keys.UUID()).
		Scoped(keys.Tenant("tenant"), keys.EventType("type"))
	nasty := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'A', ' ', ':', '|', '#', '1', '2', 'h', 'u', 'c', 'e', 'f', 0, 'é'}), 0, 6, -1)
	type drawn struct {
		key   string // what the id stands for
		exact bool
	}
	rapid.Check(t, func(t *rapid.T) {
		// Few values and many messages, so that they often share all parts but one.
		pool := rapid.SampledFrom(rapid.SliceOfN(nasty, 3, 6).Draw(t, "pool"))
		byID, byKey := map[string]string{}, map[string]string{}
		for range 50 {
			tenant, kind, value, text := pool.Draw(t, "tenant"), pool.Draw(t, "type"), pool.Draw(t, "value"), drawJSON(t)
			msg := newMessage("", "", "tenant", tenant, "type", kind)
			link := rapid.IntRange(0, len(fields)+2).Draw(t, "link")
			d := drawn{fmt.Sprintf("%q %q %d %q", tenant, kind, link, value), true}
			switch link - len(fields) {
			case 0:
				msg.Payload = []byte(`{"a b": ` + text.token + ` }`)
				d = drawn{fmt.Sprintf("%q %q %d %x", tenant, kind, link, text.units), text.exact}
			case 1:
				msg.Payload = []byte(`{"a":{"b" :` + text.token + `}}`)
				d = drawn{fmt.Sprintf("%q %q %d %x", tenant, kind, link, text.units), text.exact}
			case 2:
				msg.UUID = value
			default:
				msg.Metadata.Set(fields[link], value)
			}
			id, _, err := chain.ID(msg, 255)
			if err != nil {
				continue
			}
			if other, ok := byID[string(id)]; ok && other != d.key {
				t.Fatalf("%s and %s both have the id %q", d.key, other, id)
			}
			if other, ok := byKey[d.key]; ok && d.exact && other != string(id) {
				t.Fatalf("%s has the ids %q and %q", d.key, id, other)
			}
			byID[string(id)], byKey[d.key] = d.key, string(id)
		}
	})
}

func TestPayloadTextThatIsNotUnicodeIsKeyedAsWritten(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"\"\xff\"":         "r:\"\xff\"",
		"\"\xfe\"":         "r:\"\xfe\"",
		`"\ud800"`:         `r:"\ud800"`,
		`"\udc00\ud800"`:   `r:"\udc00\ud800"`,
		`"\ud800x\udc00"`:  `r:"\ud800x\udc00"`,
		`"\ud800\\udc00"`:  `r:"\ud800\\udc00"`,
		`"\ud83d\ude00"`:   "p:\U0001F600",
		`"\\ud800"`:        `p:\ud800`,
		`"\ufffd"`:         "p:\ufffd",
		"\"\ufffd\"":       "p:\ufffd",
		`"\"\/\b\u0000\\"`: "p:\"/\b\x00\\",
	} {
		for _, chain := range []keys.Chain{keys.First(keys.Payload("id")), keys.First(keys.Payload())} {
			payload := `{"id" : ` + token + " }"
			if strings.HasSuffix(chain.String(), "payload") {
				payload = "\t" + token + "\n"
			}
			if id, _, err := chain.ID(newMessage("", payload), 255); err != nil || string(id) != want {
				t.Errorf("%q: %q, want %q (%v)", payload, id, want, err)
			}
		}
	}
}

func TestLaterLinksOfAKindCarryTheirName(t *testing.T) {
	t.Parallel()
	const uuid = "0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11"
	one := keys.First(keys.Metadata("event_id"))
	two := one.Then(keys.UUID()).Then(keys.Metadata("request_id"))
	three := two.Then(keys.Payload("a")).Then(keys.Payload("order", "id"))
	scoped := three.Scoped(keys.Tenant("tenant"))
	for _, test := range []struct {
		chain        keys.Chain
		msg          *message.Message
		want, format string
	}{
		{one, newMessage("", "", "event_id", "42"), "h:42", "h:42"},
		{two, newMessage("", "", "event_id", "42"), "h:42", "h:42"},
		{two, newMessage("42", ""), "u:42", "u:42"},
		{two, newMessage("", "", "request_id", "42"), "h10:request_id|h:42", "h=request_id h:42"},
		{three, newMessage("", "", "request_id", uuid), "", "h=request_id h:" + uuid},
		{three, newMessage("", `{"a":"42"}`), "p:42", "p:42"},
		{three, newMessage("", `{"order":{"id":42}}`), "p8:order id|q:42", "p=order id q:42"},
		{scoped, newMessage("", "", "request_id", "42", "tenant", "t"), "c1:t|h10:request_id|h:42", "c=t h=request_id h:42"},
	} {
		id, _, err := test.chain.ID(test.msg, 255)
		if err != nil || test.want != "" && string(id) != test.want || keys.Format(id) != test.format {
			t.Errorf("%s: %q, shown as %q, want %q and %q (%v)", test.chain, id, keys.Format(id), test.want, test.format, err)
		}
	}
}

func FuzzFormat(f *testing.F) {
	f.Add([]byte("c3:abc|u:x"))
	f.Add([]byte("u#0123456789abcdef"))
	f.Add([]byte("c99999999999999999999:|"))
	f.Fuzz(func(_ *testing.T, id []byte) { keys.Format(id) }) // any bytes may be in a table
}
