package testenv

import (
	"runtime"

	"github.com/ThreeDotsLabs/watermill"
)

// Misreads are payloads at which Misread misbehaves.
func Misreads() []string { return []string{"panic", "exit", "nothing"} }

// Misread does what a program's function for reading messages must not do, if the payload
// asks for that: it panics, ends its goroutine, or reports true for such a function to
// return nothing.
func Misread(payload []byte) (nothing bool) {
	switch string(payload) {
	case "panic":
		panic("no such version")
	case "exit":
		runtime.Goexit()
	}
	return string(payload) == "nothing"
}

// PanickingLogger panics at each line.
type PanickingLogger struct{}

func (PanickingLogger) Error(string, error, watermill.LogFields) { panic("Error") }

// Info panics.
func (PanickingLogger) Info(string, watermill.LogFields) { panic("Info") }

// Debug panics.
func (PanickingLogger) Debug(string, watermill.LogFields) { panic("Debug") }

// Trace panics.
func (PanickingLogger) Trace(string, watermill.LogFields) { panic("Trace") }

// With returns l.
func (l PanickingLogger) With(watermill.LogFields) watermill.LoggerAdapter { return l }
