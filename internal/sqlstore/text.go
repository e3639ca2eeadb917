package sqlstore

import (
	"strings"
	"unicode/utf8"
)

// Text makes s fit for a text column: valid UTF-8 without NUL, at most limit bytes.
func Text(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
