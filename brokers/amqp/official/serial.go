package official

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// serial is a logger that lets one goroutine log at a time. Watermill-amqp replaces its
// connection without a lock while others read it, but each of its goroutines logs what it
// does there; with this lock the others see the new connection.
type serial struct {
	next watermill.LoggerAdapter
	mu   *sync.Mutex
}

func newSerial(next watermill.LoggerAdapter) serial { return serial{next, new(sync.Mutex)} }

// sync makes what was logged before happen before what comes now.
func (l serial) sync() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

func (l serial) Error(msg string, err error, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Error(msg, err, fields)
}

func (l serial) Info(msg string, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Info(msg, fields)
}

func (l serial) Debug(msg string, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Debug(msg, fields)
}

func (l serial) Trace(msg string, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Trace(msg, fields)
}

func (l serial) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return serial{l.next.With(fields), l.mu}
}
