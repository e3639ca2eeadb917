package callback

import (
	"context"
	"errors"
	"log/slog"
)

// ErrorsOnly returns a log of the errors alone, for Watermill's router, which says much
// about every message. Lines about an error that is the one to drop are left out.
func ErrorsOnly(log *slog.Logger, drop error) *slog.Logger {
	return slog.New(errorsOnly{log.Handler(), drop})
}

type errorsOnly struct {
	slog.Handler

	drop error
}

func (h errorsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

func (h errorsOnly) Handle(ctx context.Context, r slog.Record) error {
	dropped := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		dropped = ok && errors.Is(err, h.drop)
		return !dropped
	})
	if dropped {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs), h.drop}
}

func (h errorsOnly) WithGroup(name string) slog.Handler {
	return errorsOnly{h.Handler.WithGroup(name), h.drop}
}
