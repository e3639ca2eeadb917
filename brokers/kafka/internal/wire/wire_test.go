package wire

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/brokers"
)

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		msg := message.NewMessage(rapid.String().Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
		name := rapid.SampledFrom([]string{"", "a", "a[0]", "a[1]", "a[2]", "a[x]", "a[00]", "a[0][0]", "b[0]", "\xff\x00"})
		value := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
		msg.Metadata = rapid.MapOf(name, value).Draw(t, "metadata")
		headers, err := Headers(msg)
		if err != nil {
			t.Fatal(err)
		}
		again := Message(headers, msg.Payload)
		if again.UUID != msg.UUID || !bytes.Equal(again.Payload, msg.Payload) || !maps.Equal(again.Metadata, msg.Metadata) {
			t.Fatalf("%q became %q by %q", msg.Metadata, again.Metadata, headers)
		}
	})
}

func TestRepeatedHeadersAreKeptInOrder(t *testing.T) {
	t.Parallel()
	foreign := []Header{{"trace", []byte("1")}, {"other", nil}, {"trace", []byte("2")}, {"trace", []byte("3")}}
	msg := Message(foreign, nil)
	want := message.Metadata{"trace": "3", "trace[0]": "1", "trace[1]": "2", "other": ""}
	if msg.UUID != "" || !maps.Equal(msg.Metadata, want) {
		t.Fatalf("%q", msg.Metadata)
	}
	headers, err := Headers(msg)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, h := range headers {
		if h.Key == "trace" {
			values = append(values, string(h.Value))
		}
	}
	if strings.Join(values, "") != "123" || len(headers) != 5 {
		t.Errorf("%q", headers)
	}
}

func TestUUIDCannotBeForged(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("a", nil)
	msg.Metadata.Set(UUIDHeader, "b")
	if _, err := Headers(msg); !errors.Is(err, ErrReserved) || !errors.Is(err, brokers.ErrUnencodable) {
		t.Error(err)
	}
	headers, err := Headers(message.NewMessage("a", nil))
	if err != nil || !slices.EqualFunc(headers, []Header{{UUIDHeader, []byte("a")}}, func(a, b Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	}) {
		t.Error(headers, err)
	}
}
