// Package text makes text of unknown origin fit for logs and storage: it cuts it, and quotes it if
// it contains control characters.
package text

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Of returns an error's text. The error's method may be the program's, and panic.
func Of(err error) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("a %T whose Error method panicked: %v", err, r)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

// OfPanic returns the text of a panic's value. The value's methods may be the program's, and panic.
func OfPanic(value any) string {
	switch v := value.(type) {
	case string:
		return Shown(v)
	case error:
		return Shown(Of(v))
	default:
		return Shown(fmt.Sprint(v))
	}
}

// Printable returns an error's text, as Shown does, because parts of it may come from a message.
func Printable(err error) string { return Shown(Of(err)) }

// Shown cuts text, and quotes it if it contains control characters other than line breaks.
func Shown(s string) string {
	const most = 2 << 10
	if len(s) > most {
		s = s[:most] + "…"
	}
	for _, r := range s {
		if !strconv.IsPrint(r) && r != '\n' && r != '\t' || r == '\uFFFD' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// Word cuts a name from outside, and quotes it unless it is harmless.
func Word(s string) string {
	const shown = 100
	if len(s) > shown {
		s = s[:shown] + "…"
	}
	return Quoted(s)
}

// Quoted returns s unchanged if it is harmless, and otherwise quoted.
func Quoted(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// OneLine escapes line breaks.
func OneLine(s string) string { return oneLine.Replace(s) }

var oneLine = strings.NewReplacer("\n", `\n`, "\t", " ")

// Cut returns at most limit bytes of s.
func Cut(s string, limit int) string { return s[:min(len(s), max(limit, 0))] }

// Note appends a note to an error's kept text, within stores.MaxErrorBytes.
func Note(s, what string, why error) string {
	note := fmt.Sprintf(" [%s: %s]", what, Cut(OneLine(Printable(why)), stores.MaxHistoryErrorBytes))
	return Cut(s, stores.MaxErrorBytes-len(note)) + note
}
