package brokers

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/internal/callback"
)

// logger is a program's logger that may panic: the line is lost, and nothing else.
type logger struct{ inner watermill.LoggerAdapter }

// withoutPanics returns a logger that adapters can call from any goroutine. nil is one that
// logs nothing.
func withoutPanics(l watermill.LoggerAdapter) watermill.LoggerAdapter {
	switch l.(type) {
	case nil:
		return watermill.NopLogger{}
	case watermill.NopLogger, logger:
		return l
	}
	return logger{l}
}

func quietly(log func()) {
	_ = callback.Call("", func() error { log(); return nil }) // there is nobody left to tell
}

func (l logger) Error(msg string, err error, fields watermill.LogFields) {
	quietly(func() { l.inner.Error(msg, err, fields) })
}

func (l logger) Info(msg string, fields watermill.LogFields) {
	quietly(func() { l.inner.Info(msg, fields) })
}

func (l logger) Debug(msg string, fields watermill.LogFields) {
	quietly(func() { l.inner.Debug(msg, fields) })
}

func (l logger) Trace(msg string, fields watermill.LogFields) {
	quietly(func() { l.inner.Trace(msg, fields) })
}

func (l logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	with := l
	quietly(func() { with = logger{l.inner.With(fields)} })
	return with
}
