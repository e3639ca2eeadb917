package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Control sequences that do something on one terminal or another: colours, titles,
// hyperlinks, the clipboard, 8-bit forms, a bell, and text that runs backwards.
var hostile = []string{
	"\x1b[31mred", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\", "\x1b]52;c;ZXZpbA==\x07",
	"\x1bP+q544e\x1b\\", "\u009b31m", "\u009d52;c;ZXZpbA==\u009c", "\x9b31m", "\x07", "\b\b\b", "\x7f", "\r", "\v\f", "a\nb", "a\tb",
	"\u202eevil\u202c", "\u2066x\u2069", "\u200b", "\u2028", "\ufeff", "\U000e0041", "\xff\xfe", "\x00", "\u00ad",
}

// requireHarmless fails if a terminal could act on s, lines apart.
func requireHarmless(t require.TestingT, s string) {
	if !utf8.ValidString(s) {
		require.Fail(t, "not UTF-8", "%q", s)
	}
	for _, r := range s {
		if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)) {
			require.Fail(t, "a terminal may act on it", "%q in %q", r, s)
		}
	}
}

func TestPrintable(t *testing.T) {
	for _, s := range hostile {
		shown := printable(s)
		requireHarmless(t, shown)
		require.NotContains(t, shown, "\n")
		require.Equal(t, shown, printable(shown))
		requireHarmless(t, strings.ReplaceAll(printableLines(s), "\t", ""))
	}
	for _, s := range []string{"plain", "Zürich Ωμέγα 🚚", `C:\path "quoted"`, ""} {
		require.Equal(t, s, printable(s))
	}
	require.Equal(t, `\x1b[31m\n\xff\u202e`, printable("\x1b[31m\n\xff\u202e"))
	require.Equal(t, "a\n\tb\\r", printableLines("a\n\tb\r"))
}

func TestIDsAreToldApartAndReadBack(t *testing.T) {
	id := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(append([]string{`\`, `\n`, `\\`, `x`, `é`, `"`, `'`}, hostile...)), 0, 4).Draw(t, "pieces"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		s := id.Draw(t, "id")
		shown := quoteID(s)
		requireHarmless(t, shown)
		if got := unquoteID(shown); got != s {
			t.Fatalf("%q is shown as %q, which is read as %q", s, shown, got)
		}
	})
	require.Equal(t, `C:\path`, unquoteID(`C:\path`), "what is no escape stays")
}

func TestJSONSaysTheSameWithoutControlCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(strings.Join(rapid.SliceOfN(rapid.SampledFrom(hostile), 0, 4).Draw(t, "pieces"), "<&>"), "")
		for _, indent := range []bool{false, true} {
			b, err := encodeJSON(map[string]any{s: s, "raw": json.RawMessage(`{"n":12345678901234567890.10,"s":"` + "\u202e\u009b" + `"}`)}, "", indent)
			require.NoError(t, err)
			requireHarmless(t, string(b))
			var back map[string]any
			require.NoError(t, json.Unmarshal(b, &back))
			require.Equal(t, s, back[s])
			require.Contains(t, string(b), "12345678901234567890.10")
		}
	})
}

func TestRedact(t *testing.T) {
	const url = "postgres://app:c4nary%2Fpw@db.internal:5432/orders?sslmode=disable"
	for _, s := range []string{
		"dial " + url + " failed", `unknown command "` + url + `"`, "password c4nary/pw is wrong", "sent c4nary%2Fpw",
		"-spostgres://app:c4nary%2Fpw@db", "host=db password=c4nary/pw user=app", "postgres://app:c4nary/p@w@db/x",
	} {
		require.NotContains(t, redact(s, url), "c4nary", s)
		require.NotContains(t, redact(s, ""), "c4nary%2Fpw@", s)
	}
	require.Equal(t, "user@example.org: no", redact("user@example.org: no", url))
}

func TestCut(t *testing.T) {
	require.Equal(t, "Ωμ", cut("Ωμ", 2))
	require.Equal(t, "Ω…", cut("Ωμέ", 2))
}
