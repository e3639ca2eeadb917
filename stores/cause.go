package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// CauseOf returns the id of a cause: 12 hexadecimal digits over the class and the first KiB of
// the error's text, in which all words with a digit count as equal. So errors that differ only in
// ids and numbers have one cause.
func CauseOf(class Class, text string) string {
	sum := sha256.Sum256([]byte(string(class) + "\x00" + withoutNumbers(text)))
	const digits = 6
	return hex.EncodeToString(sum[:digits])
}

// withoutNumbers replaces words that contain digits.
func withoutNumbers(text string) string {
	const read = 1 << 10 // enough to distinguish errors, and a bound for huge ones
	if len(text) > read {
		text = text[:read]
	}
	var b strings.Builder
	for len(text) > 0 {
		end := 0
		for end < len(text) && inWord(text[end]) {
			end++
		}
		if word := text[:end]; strings.ContainsAny(word, "0123456789") {
			b.WriteByte('#')
		} else {
			b.WriteString(word)
		}
		text = text[end:]
		_, size := utf8.DecodeRuneInString(text)
		b.WriteString(text[:size])
		text = text[size:]
	}
	return b.String()
}

func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '-'
}
