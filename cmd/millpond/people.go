package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// How tables show times and counts.

// ago returns "3 minutes ago", "" for the zero time.
func (p *program) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return humanize.RelTime(t, p.now(), "ago", "from now")
}

// exactly returns the time in both forms.
func (p *program) exactly(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " (" + p.ago(t) + ")"
}

// dueIn returns when something is due that the store says is d away.
func dueIn(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	var now time.Time
	return humanize.RelTime(now.Add(d), now, "ago", "from now")
}

func count(n int) string { return humanize.Comma(int64(n)) }

// atLeast returns the count, with a + if there are more.
func atLeast(n int, more bool) string {
	if more {
		return count(n) + "+"
	}
	return count(n)
}

// messages returns "1 message" or "2,000 messages".
func messages(n int, more bool) string {
	if n == 1 && !more {
		return "1 message"
	}
	return atLeast(n, more) + " messages"
}

func bytesOf(n int) string {
	if n < 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s bytes", humanize.Comma(int64(n)))
}
