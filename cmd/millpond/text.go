package main

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// printable returns s, and escapes, as Go does, everything but visible characters and spaces:
// control characters, characters that change the direction of text, invisible ones, and bytes that
// are not UTF-8. The result is safe on a terminal, and printable leaves it unchanged.
func printable(s string) string { return escape(s, strconv.IsPrint) }

// firstLine returns what a table shows of a text. The rest may be a panic's stack.
func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

// printableLines is printable for text of several lines.
func printableLines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' || strconv.IsPrint(r) })
}

func escape(s string, keep func(rune) bool) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || !keep(r) {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// quoteID is printable for message ids, and reversible: unquoteID reads them.
func quoteID(id string) string { return printable(strings.ReplaceAll(id, `\`, `\\`)) }

// unquoteID returns the id that quoteID shows as s, or s itself.
func unquoteID(s string) string {
	var b []byte
	for rest := s; len(rest) > 0; {
		if rest[0] != '\\' {
			b, rest = append(b, rest[0]), rest[1:]
			continue
		}
		r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
		if err != nil {
			return s
		}
		if multibyte {
			b = utf8.AppendRune(b, r)
		} else {
			b = append(b, byte(r)) //nolint:gosec // \x takes two digits
		}
		rest = tail
	}
	return string(b)
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// redact removes possible secrets of a store's URL from a text, even if they are in the wrong place
// in the URL.
func redact(text, storeURL string) string {
	return urlmux.WithoutSecrets(text, storeURL, "(the store's URL)")
}
