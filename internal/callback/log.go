package callback

import (
	"context"
	"log/slog"
)

// Logger returns a logger that writes to log. If log's handler panics, only the line is
// lost.
func Logger(log *slog.Logger) *slog.Logger { return slog.New(handler{log.Handler()}) }

type handler struct{ inner slog.Handler }

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }() // there is nobody left to tell
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return Call("the log's Handle", func() error { return h.inner.Handle(ctx, r) })
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h // the attributes are lost
		}
	}()
	return handler{h.inner.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h // the group is lost
		}
	}()
	return handler{h.inner.WithGroup(name)}
}
