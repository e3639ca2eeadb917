// Package publishing is what the publishers of several adapters have in common: calls that
// Close waits for, and one error for the messages that were not taken.
package publishing

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Calls counts the calls of Publish under way. The zero value is ready for use.
type Calls struct {
	mu       sync.Mutex
	closed   bool
	underWay sync.WaitGroup
}

// Begin begins a call, which its caller ends with End. It reports false after Close.
func (c *Calls) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.underWay.Add(1)
	return true
}

// End ends a call.
func (c *Calls) End() { c.underWay.Done() }

// Close lets no call begin any more, and waits for those under way. It may be called many
// times.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.underWay.Wait()
}

// maxErrors is how many messages an error names.
const maxErrors = 10

// Failures is one error for all messages that were not taken: errs has what became of each.
// It begins with the name of the package pkg.
func Failures(pkg, topic string, messages []*message.Message, errs []error) error {
	var named []error
	failed := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		if failed++; failed <= maxErrors {
			named = append(named, Failure(pkg, topic, messages, i, err))
		}
	}
	if failed > maxErrors {
		named = append(named, fmt.Errorf("%s: publish to %q: %d messages more of %d", pkg, topic, failed-maxErrors, len(messages)))
	}
	return errors.Join(named...)
}

// Failure says what became of one message.
func Failure(pkg, topic string, messages []*message.Message, i int, err error) error {
	return fmt.Errorf("%s: publish to %q, message %d of %d (UUID %q): %w", pkg, topic, i+1, len(messages), messages[i].UUID, err)
}

// Check refuses messages that are nil.
func Check(pkg, topic string, messages []*message.Message) error {
	for i, msg := range messages {
		if msg == nil {
			return fmt.Errorf("%s: publish to %q, message %d of %d: the message is nil", pkg, topic, i+1, len(messages))
		}
	}
	return nil
}
