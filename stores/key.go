package stores

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxIDBytes is the length of the longest message id that every store takes.
const MaxIDBytes = 512

// Consumer is the name under which effects are counted once. Two handlers never
// share one: the second would take its messages for duplicates and lose them.
// Renaming either part makes a new consumer, which has seen nothing yet.
type Consumer struct {
	Service string // the program; required, without '/'
	Handler string // the handler in the program; required
}

// String returns "service/handler", the form used in tables and logs.
func (c Consumer) String() string { return c.Service + "/" + c.Handler }

// Validate returns one error that names every part that no store accepts.
func (c Consumer) Validate() error {
	return errors.Join(
		validName("Consumer.Service", c.Service, '/'),
		validName("Consumer.Handler", c.Handler, 0),
	)
}

// MaxTopicBytes is the length of the longest topic that every store takes.
const MaxTopicBytes = 1 << 10

// Validate returns an error that wraps [ErrInvalidKey] if no store accepts the consumer or
// the topic. An empty topic is valid.
func (r Registration) Validate() error {
	err := r.Consumer.Validate()
	if n := len(r.Topic); n > MaxTopicBytes {
		err = errors.Join(err, fmt.Errorf("stores: Registration.Topic has %d bytes: at most %d are allowed", n, MaxTopicBytes))
	} else if !utf8.ValidString(r.Topic) || strings.Contains(r.Topic, "\x00") {
		err = errors.Join(err, fmt.Errorf("stores: Registration.Topic is %q: use valid UTF-8 without NUL", r.Topic))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidKey, err)
	}
	return nil
}

const maxNameBytes = 200

func validName(field, name string, forbidden rune) error {
	switch {
	case name == "":
		return fmt.Errorf("stores: %s is empty: give it a fixed name", field)
	case len(name) > maxNameBytes:
		return fmt.Errorf("stores: %s has %d bytes: at most %d are allowed", field, len(name), maxNameBytes)
	case strings.ToValidUTF8(name, "") != name || strings.ContainsFunc(name, isControl):
		return fmt.Errorf("stores: %s is %q: use valid UTF-8 without control characters", field, name)
	case forbidden != 0 && strings.ContainsRune(name, forbidden):
		return fmt.Errorf("stores: %s is %q: it must not contain %q", field, name, forbidden)
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// Key identifies a message for one consumer. All deliveries of a message share it.
type Key struct {
	Consumer Consumer
	ID       []byte // 1 to MaxIDBytes bytes, compared byte by byte; stores do not keep the slice
}

// Validate returns an error that wraps [ErrInvalidKey] if no store accepts the consumer or
// the id.
func (k Key) Validate() error {
	if err := k.Consumer.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidKey, err)
	}
	if n := len(k.ID); n == 0 || n > MaxIDBytes {
		return fmt.Errorf("%w: the message id has %d bytes, 1 to %d are allowed", ErrInvalidKey, n, MaxIDBytes)
	}
	return nil
}

// String returns the key for logs: the id quoted and cut, so that nothing in it
// reaches a terminal as a control sequence.
func (k Key) String() string {
	const shown = 80
	if len(k.ID) > shown {
		return fmt.Sprintf("%s %.*q… (%d bytes)", k.Consumer, shown, k.ID[:shown], len(k.ID))
	}
	return fmt.Sprintf("%s %q", k.Consumer, k.ID)
}
