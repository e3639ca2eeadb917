package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
)

// How tables show times and counts.

// ago returns "3 minutes ago", or "" for the zero time.
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
	return exactTime(t) + " (" + p.ago(t) + ")"
}

func exactTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shownAsNow is the least time that a table does not call "now".
const shownAsNow = time.Second

// dueIn says when something is due that is due in d.
func dueIn(d time.Duration) string {
	var now time.Time
	switch {
	case d <= -time.Minute: // it waits for a worker
		return humanize.RelTime(now.Add(d), now, "overdue", "")
	case d <= 0:
		return "now"
	}
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

// plural returns "1 error" or "3 errors".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", count(n), noun)
}

// messages returns "1 message", "2,000 messages" or "10,000+ messages".
func messages(n int, more bool) string {
	if more {
		return atLeast(n, more) + " messages"
	}
	return plural(n, "message")
}

func bytesOf(n int) string {
	if n < 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s bytes", humanize.Comma(int64(n)))
}
