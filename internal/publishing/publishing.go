// Package publishing is shared by the publishers of several adapters: Close waits for calls
// under way, one error names the messages that were not published, and where the server
// answers for each message so does PublishEach.
package publishing

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Calls counts the calls of Publish under way. The zero value is ready for use.
type Calls struct {
	mu       sync.Mutex
	closed   bool
	underWay sync.WaitGroup
}

// Publish calls send, unless there are no messages, one is nil, or Close was called. Errors
// begin with the package name pkg.
func (c *Calls) Publish(pkg, topic string, messages []*message.Message, send func() error) error {
	if !c.begin() {
		return fmt.Errorf("%s: publisher: %w", pkg, brokers.ErrClosed)
	}
	defer c.underWay.Done()
	for i, msg := range messages {
		if msg == nil {
			return fmt.Errorf("%s: publish to %q, message %d of %d: the message is nil", pkg, topic, i+1, len(messages))
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return send()
}

func (c *Calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

// Close refuses new calls and waits for those under way. It may be called many times and
// returns nil.
func (c *Calls) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.underWay.Wait()
	return nil
}

// Encode encodes each message, or returns why one cannot be sent.
func Encode[T any](pkg, topic string, messages []*message.Message, encode func(*message.Message) (T, error)) ([]T, error) {
	all := make([]T, len(messages))
	for i, msg := range messages {
		var err error
		if all[i], err = encode(msg); err != nil {
			return nil, failure(pkg, topic, messages, i, err)
		}
	}
	return all, nil
}

// maxErrors is the number of messages that an error names.
const maxErrors = 10

// Failures returns one error for all messages that were not published; errs has an entry
// for each message. It begins with the package name pkg.
func Failures(pkg, topic string, messages []*message.Message, errs []error) error {
	var named []error
	failed := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		if failed++; failed <= maxErrors {
			named = append(named, failure(pkg, topic, messages, i, err))
		}
	}
	if failed > maxErrors {
		named = append(named, fmt.Errorf("%s: publish to %q: %d messages more of %d", pkg, topic, failed-maxErrors, len(messages)))
	}
	return errors.Join(named...)
}

func failure(pkg, topic string, messages []*message.Message, i int, err error) error {
	return fmt.Errorf("%s: publish to %q, message %d of %d (UUID %q): %w", pkg, topic, i+1, len(messages), messages[i].UUID, err)
}
