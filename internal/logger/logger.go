// Package logger guards the loggers that programs give to brokers.
package logger

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/internal/callback"
)

// Logger is a Watermill logger that writes each line inside Around.
type Logger struct {
	Inner  watermill.LoggerAdapter
	Around func(write func())
}

// Quietly is an Around: a panic costs the line, and nothing else.
func Quietly(write func()) {
	_ = callback.Call("", func() error { write(); return nil }) // there is nobody left to tell
}

// Error implements watermill.LoggerAdapter.
func (l *Logger) Error(msg string, err error, fields watermill.LogFields) {
	l.Around(func() { l.Inner.Error(msg, err, fields) })
}

// Info implements watermill.LoggerAdapter.
func (l *Logger) Info(msg string, fields watermill.LogFields) {
	l.Around(func() { l.Inner.Info(msg, fields) })
}

// Debug implements watermill.LoggerAdapter.
func (l *Logger) Debug(msg string, fields watermill.LogFields) {
	l.Around(func() { l.Inner.Debug(msg, fields) })
}

// Trace implements watermill.LoggerAdapter.
func (l *Logger) Trace(msg string, fields watermill.LogFields) {
	l.Around(func() { l.Inner.Trace(msg, fields) })
}

// With implements watermill.LoggerAdapter. The fields are lost if the logger panics.
func (l *Logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	with := l
	l.Around(func() { with = &Logger{l.Inner.With(fields), l.Around} })
	return with
}
