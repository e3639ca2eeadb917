package keys_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/middleware/keys"
)

func TestParseIsTheInverseOfFormat(t *testing.T) {
	t.Parallel()
	chain := keys.First(keys.Metadata("first")).Then(keys.Metadata("second")).Then(keys.UUID())
	plain := []string{"42", "a b", "x:y", "U:1", "0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11", "\x1b[0m", "\xff", "#", "|", "9:a|u:b"}
	values := rapid.SampledFrom(append([]string{"a u:1", "c=1 ", "e="}, plain...))
	scopes := rapid.SampledFrom(append([]string{"", " "}, plain...))
	rapid.Check(t, func(t *rapid.T) {
		scoped := chain
		if rapid.Bool().Draw(t, "tenant") {
			scoped = scoped.Scoped(keys.Tenant("tenant"))
		}
		if rapid.Bool().Draw(t, "type") {
			scoped = scoped.Scoped(keys.EventType("type"))
		}
		id, _, err := scoped.ID(newMessage(values.Draw(t, "uuid"), "",
			rapid.SampledFrom([]string{"first", "second", "none"}).Draw(t, "link"), values.Draw(t, "value"),
			"tenant", scopes.Draw(t, "tenant value"), "type", scopes.Draw(t, "type value")), 255)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys.Parse(keys.Format(id)); err != nil || !bytes.Equal(got, id) {
			t.Errorf("%q is shown as %q, which was read as %q, %v", id, keys.Format(id), got, err)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"u:0c2f8d6e-3a58-4a52-9c1c-6b6d0a4f7c11": "u#\x0c\x2f\x8d\x6e\x3a\x58\x4a\x52\x9c\x1c\x6b\x6d\x0a\x4f\x7c\x11",
		"h:a u:b":                                "h:a u:b",
		"c=acme e= h:42":                         "c4:acme|e0:|h:42",
		"h=request_id h:42":                      "h10:request_id|h:42",
		"x:quarantine/7":                         "x:quarantine/7",
		"c=a b h:1":                              "c3:a b|h:1",
		"u:":                                     "u:",
		"c= u:x\x1b[m":                           "c0:|u:x\x1b[m",
	} {
		if got, err := keys.Parse(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, want %q (%v)", text, got, want, err)
		}
	}
	for _, text := range []string{"", "u", "42", "U:1", "c=acme", "c=acme ", "c=", strings.Repeat("a=b ", 1000)} {
		if got, err := keys.Parse(text); !errors.Is(err, keys.ErrNotAnID) {
			t.Errorf("%.40q: %q, %v", text, got, err)
		}
	}
}
