package sqlite

import "strings"

// unshared returns what in a query prevents sharing its transaction with other messages, without
// values, or "". Reads and writes of rows can be shared: they leave no savepoint, setting or table
// that the next message's handler would notice.
func unshared(query string) string {
	w := words{rest: query}
	switch first := strings.ToUpper(w.next()); first {
	case "SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "VALUES", "":
	default:
		return first
	}
	for word := w.next(); word != ""; word = w.next() {
		if word == ";" && w.next() != "" {
			return "several statements at once"
		}
	}
	return ""
}

// words reads SQL word by word, without quoted text and comments.
type words struct{ rest string }

// next returns a word, or another byte; "" at the end.
func (w *words) next() string {
	for w.rest != "" {
		switch c := w.rest[0]; {
		case isSpace(c):
			w.rest = w.rest[1:]
		case strings.HasPrefix(w.rest, "--"):
			_, w.rest, _ = strings.Cut(w.rest, "\n")
		case strings.HasPrefix(w.rest, "/*"):
			_, w.rest, _ = strings.Cut(w.rest[2:], "*/")
		case c == '\'', c == '"', c == '`':
			return w.quoted(c)
		case c == '[':
			return w.quoted(']')
		case isWordByte(c):
			n := 1
			for n < len(w.rest) && isWordByte(w.rest[n]) {
				n++
			}
			return w.take(n)
		default:
			return w.take(1)
		}
	}
	return ""
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' && c != '\v' }

func (w *words) take(n int) string {
	word := w.rest[:n]
	w.rest = w.rest[n:]
	return word
}

// quoted skips quoted text. A doubled quote reads as two quoted texts.
func (w *words) quoted(end byte) string {
	_, w.rest, _ = strings.Cut(w.rest[1:], string(end))
	return string(end)
}
