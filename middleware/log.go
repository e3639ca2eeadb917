package middleware

import (
	"errors"
	"log/slog"
	"strconv"

	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// report logs how a delivery ended: what was handled for debugging, the rest for
// somebody to look at. Payload and metadata are never logged.
func (d *delivery) report() {
	level := slog.LevelError
	switch d.end.Result {
	case ResultCompleted, ResultDuplicate:
		if d.end.Err == nil {
			level = slog.LevelDebug
		}
	case ResultNotNow:
		level = slog.LevelWarn
		if errors.Is(d.end.Err, ErrInFlight) || d.shutdown.Err() != nil {
			level = slog.LevelDebug
		}
	case ResultQuarantined, ResultFailed, ResultPanicked:
	}
	if !d.in.log.Enabled(d.ctx, level) {
		return
	}
	attrs := d.attrs()
	if d.end.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(d.end.Reason)))
	}
	if d.failures > 0 {
		attrs = append(attrs, slog.Int("failures", d.failures))
	}
	if d.end.Err != nil {
		attrs = append(attrs, slog.String("error", d.end.Err.Error()))
	}
	d.in.log.LogAttrs(d.ctx, level, "millpond: delivery "+string(d.end.Result), attrs...)
}

// logHold says once for each reason why a delivery waits.
func (d *delivery) logHold(reason error) {
	if d.wait.last != nil && d.wait.last.Error() == reason.Error() {
		return
	}
	d.wait.last = reason
	level := slog.LevelError
	switch {
	case errors.Is(reason, ErrInFlight):
		level = slog.LevelDebug
	case errors.Is(reason, stores.ErrUnavailable), errors.Is(reason, stores.ErrCommitUnknown):
		level = slog.LevelWarn
	}
	if d.in.log.Enabled(d.ctx, level) {
		d.in.log.LogAttrs(d.ctx, level, "millpond: delivery is held", append(d.attrs(), slog.String("error", reason.Error()))...)
	}
}

func (d *delivery) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("consumer", d.claim.Key.Consumer.String()),
		slog.String("topic", printable(d.topic)),
		slog.String("id", printable(keys.Format(d.claim.Key.ID))),
	}
}

// printable cuts text from outside, and quotes it if it holds anything that could do
// more in a terminal than be read.
func printable(s string) string {
	const shown = 100
	if len(s) > shown {
		s = s[:shown] + "…"
	}
	for _, r := range s {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}
