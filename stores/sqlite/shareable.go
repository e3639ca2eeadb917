package sqlite

import "strings"

// unshared says what in a query cannot be shared with other messages, without a value of its;
// "": nothing. Reads and writes of rows can: they leave no savepoint, setting or table behind
// that the next message's handler would meet.
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

// words reads SQL word by word, without what is in quotes and comments.
type words struct{ rest string }

// next returns a word, or a byte that is none; "" at the end.
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

// quoted skips what is quoted. A quote in it is doubled, which looks like two of them in a row.
func (w *words) quoted(end byte) string {
	_, w.rest, _ = strings.Cut(w.rest[1:], string(end))
	return string(end)
}
