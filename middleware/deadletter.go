package middleware

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// DeadLetterConfig lets a copy of every message that has failed for good be published,
// beside the row that is kept of it. The zero value publishes nothing.
//
// The copy is published before the failure is recorded: at least once, also if the
// process dies in between. While it cannot be published the message is held, for
// HoldConfig.Limit, and the handler is not run again. Then:
//
//   - If the row has all of the message it is the dead letter, without a copy, and the
//     messages behind it go on.
//   - If the row has less the broker keeps the message, and its redeliveries try again, for
//     RetryPolicy.MaxAge.
//   - A retry worker parks the message, under a class that begins with "uncopied: ", and
//     tries again, for RetryPolicy.MaxAge.
//
// There is no copy at once of a message
//
//   - that is too large for the publisher's broker (brokers.ErrTooLarge),
//   - that cannot be written in its format (brokers.ErrUnencodable),
//   - whose publisher returns an error that is marked with [Permanent].
//
// The log says of each message that it has no copy. Its row does so, too, at the end of the
// error, unless the broker kept the message meanwhile. A retried message that cannot be
// restored from what is kept of it has none either: its class is stores.ClassUnreadable.
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
	if c.Publisher == nil || d.refused.copied || unreadable {
		return nil
	}
	if why := d.refused.noCopy; why != nil {
		d.noCopy(f, why)
		return nil
	}
	was := d.origin()
	letter := message.NewMessage(was.uuid, was.payload)
	for name, value := range was.metadata {
		letter.Metadata.Set(name, value)
	}
	letter.Metadata.Set(MetadataConsumer, d.claim.Key.Consumer.String())
	letter.Metadata.Set(MetadataTopic, d.topic)
	letter.Metadata.Set(MetadataClass, string(f.Class))
	if f.Error != "" {
		letter.Metadata.Set(MetadataError, quoted(cut(f.Error, stores.MaxHistoryErrorBytes)))
	}
	letter.Metadata.Set(MetadataAttempts, strconv.Itoa(f.Attempts))
	letter.SetContext(d.ctx)
	err = callback.Call("the publisher", func() error { return c.Publisher.Publish(c.Topic, letter) })
	switch {
	case err == nil:
		d.refused.copied = true
	case refusedForGood(err):
		d.noCopy(f, err)
	case d.refused.late == nil:
		return fmt.Errorf("%w: %w", errNoCopy, err)
	case d.retry != nil && d.state.Age < d.policy.MaxAge:
		d.parkUncopied(f, err)
	case d.brokerHasIt() && (d.shutdown.Err() != nil || f.Content.State != stores.ContentKept):
		d.keepLater(f, err)
	default: // its row has all of it
		d.noCopy(f, err)
	}
	return nil
}

// brokerHasIt reports whether a nack brings the message back.
func (d *delivery) brokerHasIt() bool { return d.retry == nil && !(d.end.Runs > 0 && d.acked()) }

// copyLate ends the time in which a copy is waited for. It reports false for any other
// trouble, and for a retry worker that stops: another one goes on.
func (d *delivery) copyLate(why error) bool {
	if !errors.Is(why, errNoCopy) || d.retry != nil && d.shutdown.Err() != nil {
		return false
	}
	d.refused.late = why
	return true
}

var errNoCopy = errors.New("middleware: cannot publish the copy of a dead letter")
