package wire

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/brokers"
)

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
		msg := message.NewMessage(text.Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
		msg.Metadata = rapid.MapOf(rapid.SampledFrom([]string{"", "a", "Cc", "x-death-not", "\xff\x00", strings.Repeat("n", LongestName)}), text).Draw(t, "metadata")
		p, err := Publishing(msg)
		if err != nil {
			t.Fatal(err)
		}
		p.Headers[CountHeader], p.Headers[AcquiredHeader] = int64(1), int64(2) // as on a redelivery
		again := Message(p.Headers, p.Body)
		if again.UUID != msg.UUID || !bytes.Equal(again.Payload, msg.Payload) || !maps.Equal(again.Metadata, msg.Metadata) {
			t.Fatalf("%q became %q", msg.Metadata, again.Metadata)
		}
	})
}

func TestPublishingIsPersistentWithUUID(t *testing.T) {
	t.Parallel()
	p, err := Publishing(message.NewMessage("a", []byte("payload")))
	if err != nil || p.DeliveryMode != amqp091.Persistent || p.Headers[UUIDHeader] != "a" || string(p.Body) != "payload" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestNamesThatMeanSomethingElse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		UUIDHeader: ErrReserved, "CC": ErrReserved, "BCC": ErrReserved, strings.Repeat("n", LongestName+1): ErrNameTooLong, "name": nil,
	} {
		msg := message.NewMessage("a", nil)
		msg.Metadata.Set(name, "value")
		if _, err := Publishing(msg); !errors.Is(err, want) || want != nil && !errors.Is(err, brokers.ErrUnencodable) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	handedOn := message.NewMessage("a", nil)
	for _, name := range append(Counters(), Deaths()...) {
		handedOn.Metadata.Set(name, "value")
	}
	if p, err := Publishing(handedOn); err != nil || len(p.Headers) != 1 {
		t.Errorf("headers %v, %v", p.Headers, err)
	}
}

func TestHeadersOfAnyType(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.FixedZone("", 3600))
	for want, value := range map[string]any{
		"text": "text", "\xff\x00": []byte("\xff\x00"), "": nil, "true": true, "2024-05-06T06:08:09Z": at,
		"-1": int8(-1), "2": uint8(2), "-3": int16(-3), "4": uint16(4), "5": int32(5), "6": uint32(6), "-7": int64(-7), "8": 8,
		"1.5": float32(1.5), "0.1": 0.1, "NaN": math.NaN(), "+Inf": math.Inf(1),
		"-0.05": amqp091.Decimal{Scale: 2, Value: -5}, "123.45": amqp091.Decimal{Scale: 2, Value: 12345}, "9": amqp091.Decimal{Value: 9},
		`{"a":[1,"b",null,"2024-05-06T06:08:09Z","/w=="],"c":{"d":"NaN"}}`: amqp091.Table{
			"c": amqp091.Table{"d": math.NaN()}, "a": []any{int64(1), []byte("b"), nil, at, []byte{0xff}},
		},
		"[]": []any{}, "{}": amqp091.Table{},
		"{7}": struct{ a int }{7}, // the client reads no such type
	} {
		msg := Message(amqp091.Table{"name": value, UUIDHeader: value}, nil)
		if got, ok := msg.Metadata["name"]; got != want || !ok || msg.UUID != want {
			t.Errorf("%#v became %q, as a UUID %q", value, got, msg.UUID)
		}
	}
	if msg := Message(nil, nil); msg.UUID != "" || msg.Metadata == nil || len(msg.Payload) != 0 {
		t.Errorf("%+v", msg)
	}
}

// What has arrived can be published again, whatever its producer has put into its headers.
func TestHeadersOfAnyNameCanBeHandedOn(t *testing.T) {
	t.Parallel()
	headers := amqp091.Table{UUIDHeader: "a", "": "", strings.Repeat("n", LongestName): "value", HistoryHeader: "value", "name": "value"}
	for _, name := range append(append(Counters(), Deaths()...), Copies()...) {
		headers[name] = []any{}
	}
	msg := Message(headers, nil)
	if p, err := Publishing(msg); err != nil || p.Headers["name"] != "value" {
		t.Errorf("%q: %v", msg.Metadata, err)
	}
}

// TestDeadLetters: the history of a message that came by a dead-letter exchange is read,
// the counts of its queue are not.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	msg := Message(amqp091.Table{
		"x-death":        []any{amqp091.Table{"count": int64(1), "reason": "rejected", "queue": "q"}},
		CountHeader:      int64(3),
		AcquiredHeader:   int64(4),
		"x-other-number": int64(5),
	}, nil)
	want := message.Metadata{"x-death": `[{"count":1,"queue":"q","reason":"rejected"}]`, "x-other-number": "5"}
	if !maps.Equal(msg.Metadata, want) {
		t.Errorf("%q", msg.Metadata)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	headers := amqp091.Table{"ab": "cde", "f": []any{[]byte("gh"), int64(1)}, "i": amqp091.Table{"j": nil}}
	if n := Size(headers); n != 4+(3+1+4+3)+(2+1+4+(1+4+2)+9)+(2+1+4+(2+9)) {
		t.Errorf("%d", n)
	}
}

// TestCounts: what a producer has written into the headers of the server counts for nothing.
func TestCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		redelivered      bool
		counted, taken   any
		acquired         bool
		wantCounted, all int64
	}{
		{"first, by a producer", false, int64(3), int64(5), true, 0, 0},
		{"first, by a producer, old server", false, int64(3), int64(5), false, 0, 0},
		{"again", true, int64(2), int64(4), true, 2, 4},
		{"again, old server", true, int64(2), int64(1 << 62), false, 2, 2},
		{"nothing counted, by a producer", true, int64(1 << 62), int64(2), true, 2, 2},
		{"negative, by a producer", true, int64(-1 << 62), int64(2), true, 0, 2},
		{"other types", true, "3", nil, true, 0, 0},
	} {
		d := &amqp091.Delivery{Redelivered: c.redelivered, Headers: amqp091.Table{CountHeader: c.counted, AcquiredHeader: c.taken}}
		if counted, all := Counts(d, c.acquired); counted != c.wantCounted || all != c.all {
			t.Errorf("%s: %d, %d", c.name, counted, all)
		}
	}
}
