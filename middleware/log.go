package middleware

import (
	"errors"
	"log/slog"

	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// report logs how a delivery ended: completed messages and duplicates at debug level, the rest as
// warnings and errors. Payload and metadata are never logged.
func (v *visit) report(end *delivery.End) {
	level := slog.LevelError
	switch end.Result {
	case delivery.Completed, delivery.Duplicate:
		if end.Err == nil {
			level = slog.LevelDebug
		}
	case delivery.NotNow:
		level = slog.LevelWarn
		if errors.Is(end.Err, ErrInFlight) || v.arrival.Contexts.Shutdown.Err() != nil {
			level = slog.LevelDebug
		}
		if errors.Is(end.Err, ErrAckedEarly) { // and the message could not be kept
			level = slog.LevelError
		}
	case delivery.Parked, delivery.Final:
		level = slog.LevelWarn
		if end.Class == "" || end.Class == stores.ClassOrder { // it failed earlier, or not at all
			level = slog.LevelDebug
		}
	case delivery.GivenBack:
		level = slog.LevelWarn
	case delivery.Quarantined, delivery.Failed, delivery.Panicked:
	}
	if !v.in.config.Logger.Enabled(v.arrival.Contexts.Detached, level) || level > slog.LevelDebug && v.manyAlike(end) {
		return
	}
	attrs := v.attrs()
	if end.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(end.Reason)))
	}
	if end.Class != "" {
		attrs = append(attrs, slog.String("class", string(end.Class)), slog.Int("attempts", end.Attempts))
		if end.Final {
			attrs = append(attrs, slog.Bool("final", true))
		}
		if end.DueIn > 0 {
			attrs = append(attrs, slog.Duration("due_in", end.DueIn))
		}
	}
	if end.Err != nil {
		attrs = append(attrs, slog.String("error", text.Printable(end.Err)))
	}
	if stack := panics.StackOf(end.Err); stack != "" {
		attrs = append(attrs, slog.String("stack", stack))
	}
	v.in.config.Logger.LogAttrs(v.arrival.Contexts.Detached, level, "millpond: delivery "+string(end.Result), attrs...)
}

// manyAlike reports whether enough lines with this content were logged.
func (v *visit) manyAlike(end *delivery.End) bool {
	log, consumer := v.in.config.Logger, v.arrival.Claim.Key.Consumer
	kind := loglimit.Kind{Consumer: consumer, Result: string(end.Result), Cause: stores.CauseOf(end.Class, text.Of(end.Err))}
	return !v.in.logLimit.Pass(kind, func(left int) {
		log.Warn("millpond: more deliveries ended in the same way than are logged",
			slog.String("consumer", consumer.String()), slog.String("result", kind.Result),
			slog.String("cause", kind.Cause), slog.Int("not_logged", left), slog.Duration("within", loglimit.Within))
	})
}

// Complains implements delivery.Observer. Only some of many equal lines are logged.
func (v *visit) Complains(what string, why error) {
	log, kind := v.in.config.Logger, loglimit.Kind{Consumer: v.arrival.Claim.Key.Consumer, Cause: what}
	if v.in.logLimit.Pass(kind, func(left int) {
		log.Warn("millpond: more messages were refused in the same way than are logged",
			slog.String("consumer", kind.Consumer.String()), slog.String("refusal", what),
			slog.Int("not_logged", left), slog.Duration("within", loglimit.Within))
	}) {
		log.Error("millpond: "+what, append(anys(v.attrs()), slog.String("error", text.Printable(why)))...)
	}
}

// logHold logs why a delivery waits, once for each reason.
func (v *visit) logHold(reason error, store bool) {
	if v.diary.held != nil && text.Of(v.diary.held) == text.Of(reason) {
		return
	}
	v.diary.held = reason
	level := slog.LevelError
	switch {
	case errors.Is(reason, ErrInFlight), errors.Is(reason, delivery.ErrDeferred), errors.Is(reason, delivery.ErrBehind):
		level = slog.LevelDebug
	case store: // the pause of the intake logs it once
		level = slog.LevelDebug
	case errors.Is(reason, stores.ErrCommitUnknown):
		level = slog.LevelWarn
	}
	ctx := v.arrival.Contexts.Detached
	if v.in.config.Logger.Enabled(ctx, level) {
		v.in.config.Logger.LogAttrs(ctx, level, "millpond: delivery is held", append(v.attrs(), slog.String("error", text.Printable(reason)))...)
	}
}

func (v *visit) attrs() []slog.Attr {
	key := v.arrival.Claim.Key
	return []slog.Attr{
		slog.String("consumer", key.Consumer.String()),
		slog.String("topic", text.Word(v.arrival.Origin.Topic)),
		slog.String("id", text.Word(keys.Format(key.ID))),
	}
}

// anys converts attributes for methods that take any.
func anys(attrs []slog.Attr) []any {
	all := make([]any, len(attrs))
	for i, a := range attrs {
		all[i] = a
	}
	return all
}
