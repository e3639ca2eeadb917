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
		if errors.Is(d.end.Err, ErrAckedEarly) { // and it could not be kept
			level = slog.LevelError
		}
	case ResultParked, ResultFinal:
		level = slog.LevelWarn
		if d.end.Class == "" || d.end.Class == stores.ClassOrder { // it had failed before, or not at all
			level = slog.LevelDebug
		}
	case ResultGivenBack:
		level = slog.LevelWarn
	case ResultQuarantined, ResultFailed, ResultPanicked:
	}
	if !d.in.log.Enabled(d.ctx, level) || level > slog.LevelDebug && d.manyAlike() {
		return
	}
	attrs := d.attrs()
	if d.end.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(d.end.Reason)))
	}
	if d.end.Class != "" {
		attrs = append(attrs, slog.String("class", string(d.end.Class)), slog.Int("attempts", d.end.Attempts))
		if d.end.Final {
			attrs = append(attrs, slog.Bool("final", true))
		}
		if d.end.DueIn > 0 {
			attrs = append(attrs, slog.Duration("due_in", d.end.DueIn))
		}
	}
	if d.end.Err != nil {
		attrs = append(attrs, slog.String("error", printableText(d.end.Err)))
	}
	if stack := stackOf(d.end.Err); stack != "" {
		attrs = append(attrs, slog.String("stack", stack))
	}
	d.in.log.LogAttrs(d.ctx, level, "millpond: delivery "+string(d.end.Result), attrs...)
}

// manyAlike reports whether enough was logged that says the same.
func (d *delivery) manyAlike() bool {
	log, consumer, result := d.in.log, d.claim.Key.Consumer, d.end.Result
	kind := alike{consumer: consumer, result: result, cause: stores.CauseOf(d.end.Class, errorText(d.end.Err))}
	return !d.in.logLimit.pass(kind, func(left int) {
		log.Warn("millpond: more deliveries ended in the same way than are logged",
			slog.String("consumer", consumer.String()), slog.String("result", string(result)),
			slog.String("cause", kind.cause), slog.Int("not_logged", left), slog.Duration("within", alikeWithin))
	})
}

// logHold says once for each reason why a delivery waits.
func (d *delivery) logHold(reason error) {
	if d.wait.last != nil && errorText(d.wait.last) == errorText(reason) {
		return
	}
	d.wait.last = reason
	level := slog.LevelError
	switch {
	case errors.Is(reason, ErrInFlight), errors.Is(reason, errDeferred), errors.Is(reason, errBehind):
		level = slog.LevelDebug
	case concernsStore(reason): // the intake says so, once
		level = slog.LevelDebug
	case errors.Is(reason, stores.ErrCommitUnknown):
		level = slog.LevelWarn
	}
	if d.in.log.Enabled(d.ctx, level) {
		d.in.log.LogAttrs(d.ctx, level, "millpond: delivery is held", append(d.attrs(), slog.String("error", printableText(reason)))...)
	}
}

func (d *delivery) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("consumer", d.claim.Key.Consumer.String()),
		slog.String("topic", printable(d.topic)),
		slog.String("id", printable(keys.Format(d.claim.Key.ID))),
	}
}

// anys returns attributes for methods that take anything.
func anys(attrs []slog.Attr) []any {
	all := make([]any, len(attrs))
	for i, a := range attrs {
		all[i] = a
	}
	return all
}

// printableText is what an error says, cut and without control characters: part of it
// may come from a message.
func printableText(err error) string { return shown(errorText(err)) }

// shown cuts text of unknown origin, and quotes it if it holds anything but lines to read.
func shown(text string) string {
	const most = 2 << 10
	if len(text) > most {
		text = text[:most] + "…"
	}
	for _, r := range text {
		if !strconv.IsPrint(r) && r != '\n' && r != '\t' || r == '\uFFFD' {
			return strconv.QuoteToASCII(text)
		}
	}
	return text
}

// printable cuts text from outside, and quotes it if it holds anything that could do
// more in a terminal than be read.
func printable(s string) string {
	const shown = 100
	if len(s) > shown {
		s = s[:shown] + "…"
	}
	return quoted(s)
}

// quoted returns s as it is if it is harmless, else quoted.
func quoted(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}
