package middleware

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// DeadLetterConfig lets a copy of every message that has failed for good be published,
// beside the row that is kept of it. The zero value publishes nothing.
//
// The copy is published before the failure is recorded: at least once, also if the
// process dies in between. While it cannot be published the message is held. Of a message
// that cannot be restored from what is kept of it there is no copy.
type DeadLetterConfig struct {
	Publisher message.Publisher
	Topic     string
}

// Metadata of copies of dead letters, beside the message's own.
const (
	MetadataConsumer = "millpond_consumer"
	MetadataTopic    = "millpond_topic"    // from which the message came
	MetadataClass    = "millpond_class"    // of the last failure
	MetadataError    = "millpond_error"    // the last one, cut to stores.MaxHistoryErrorBytes
	MetadataAttempts = "millpond_attempts" // that counted
)

func (c *DeadLetterConfig) validate(bad func(format string, args ...any)) {
	switch {
	case c.Publisher == nil && c.Topic != "":
		bad("DeadLetters.Topic is %q without a Publisher: set both or none", c.Topic)
	case c.Publisher != nil && c.Topic == "":
		bad("DeadLetters.Publisher is set without a Topic: set both or none")
	}
}

// copyDeadLetter publishes the message as it arrived, once for this delivery.
func (d *delivery) copyDeadLetter(f *stores.Failure) (err error) {
	c := &d.in.config.DeadLetters
	unreadable := d.retry != nil && d.retry.unreadable != nil // there is nothing to copy
	if c.Publisher == nil || d.copied || unreadable {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("middleware: the publisher of dead letters panicked: %v", r)
		}
	}()
	letter := message.NewMessage(d.uuid, d.payload)
	for name, value := range d.metadata {
		letter.Metadata.Set(name, value)
	}
	letter.Metadata.Set(MetadataConsumer, d.claim.Key.Consumer.String())
	letter.Metadata.Set(MetadataTopic, d.topic)
	letter.Metadata.Set(MetadataClass, string(f.Class))
	letter.Metadata.Set(MetadataError, quoted(cut(f.Error, stores.MaxHistoryErrorBytes)))
	letter.Metadata.Set(MetadataAttempts, strconv.Itoa(f.Attempts))
	letter.SetContext(d.ctx)
	if err := c.Publisher.Publish(c.Topic, letter); err != nil {
		return fmt.Errorf("%w: %w", errNoCopy, err)
	}
	d.copied = true
	return nil
}

var errNoCopy = errors.New("middleware: cannot publish the copy of a dead letter")
