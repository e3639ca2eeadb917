package sqlstore

import (
	"strings"
	"unicode/utf8"
)

// Text makes s fit for a text column: valid UTF-8 without NUL, at most limit bytes. Its cost does
// not depend on the length of s.
func Text(s string, limit int) string {
	s = cut(s, limit) // before it is cleaned
	return cut(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD"), limit)
}

// cut returns at most limit bytes, without a partial character at the end.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > max(limit-utf8.UTFMax, 0) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// NonEmpty returns NULL for an empty value.
func NonEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
