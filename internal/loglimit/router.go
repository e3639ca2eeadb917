package loglimit

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// OfRouter returns the log for a router of Watermill, which logs much about every message.
// It passes only errors, and limits those that are equal for one handler. Lines about the
// error drop are left out.
func OfRouter(log *slog.Logger, drop error) *slog.Logger {
	return slog.New(ofRouter{log.Handler(), slog.New(log.Handler()), drop, new(Limit)})
}

type ofRouter struct {
	slog.Handler

	log   *slog.Logger // for what was left out
	drop  error
	limit *Limit
}

// Enabled implements slog.Handler.
func (h ofRouter) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h ofRouter) Handle(ctx context.Context, r slog.Record) error {
	line, _, _ := strings.Cut(r.Message, ". Stack:") // which names a goroutine
	handler, cause, dropped := "", "", false
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			cause, dropped = err.Error(), errors.Is(err, h.drop)
		}
		if a.Key == "handler_name" {
			handler = a.Value.String()
		}
		return !dropped
	})
	if dropped {
		return nil
	}
	kind := Kind{Consumer: stores.Consumer{Handler: handler}, Result: line, Cause: stores.CauseOf("", cause)}
	if !h.limit.Pass(kind, func(left int) {
		h.log.Error("millpond: Watermill's router said the same more often than is logged",
			slog.String("handler", handler), slog.String("line", line), slog.String("cause", kind.Cause),
			slog.Int("not_logged", left), slog.Duration("within", Within))
	}) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h ofRouter) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h ofRouter) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
