package middleware

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// DeadLetterConfig publishes a copy of every message that has failed for good, in addition to the
// row that is kept. The zero value publishes nothing.
//
// The copy has the broker's key of the message, if it is known and the publisher's broker has
// keys (brokers.WithKey).
//
// The copy is published before the failure is recorded, so at least once. While publishing fails
// the message is held, for HoldConfig.Limit, and the handler is not run again. Then:
//
//   - If the row keeps the whole message, the row alone is the dead letter, and later
//     messages go on.
//   - If the row keeps less, the broker keeps the message, and its redeliveries try again
//     for RetryPolicy.MaxAge.
//   - A retry worker parks the message, with a class that begins with "uncopied: ", and
//     tries again for RetryPolicy.MaxAge.
//
// These messages are not copied, and nothing waits for them:
//
//   - those too large for the publisher's broker (brokers.ErrTooLarge),
//   - those that cannot be written in its format (brokers.ErrUnencodable),
//   - those for which the publisher returns an error marked with [Permanent],
//   - those that cannot be restored from what is kept (stores.ClassUnreadable),
//   - parked messages whose attempts ended the process, after three calls of Codec.Decode
//     for the copy that did not return.
//
// The log names each message without a copy. So does its row, at the end of the error, unless the
// broker kept the message meanwhile.
type DeadLetterConfig struct {
	Publisher message.Publisher
	Topic     string `config:"topic" example:"my-service.dead" about:"The topic that copies are published to, on the same broker. Default: none, no copies."`
	// Timeout is the deadline of the context of each published message. A publisher that ignores
	// its context's end delays the delivery.
	Timeout time.Duration `config:"-" default:"10s" check:"positive"`
}

// The metadata that copies of dead letters have in addition to the message's own.
const (
	MetadataConsumer = "millpond_consumer"
	MetadataTopic    = "millpond_topic"    // the topic of the message
	MetadataClass    = "millpond_class"    // of the last failure
	MetadataError    = "millpond_error"    // the last one, cut to stores.MaxHistoryErrorBytes
	MetadataAttempts = "millpond_attempts" // counted attempts
)

func (c *DeadLetterConfig) validate(bad func(name, format string, args ...any)) {
	switch {
	case c.Publisher == nil && c.Topic != "":
		bad("DeadLetters.Topic", "is %q without a Publisher: set both or none", c.Topic)
	case c.Publisher != nil && c.Topic == "":
		bad("DeadLetters.Publisher", "is set without a Topic: set both or none")
	}
}

// letters publishes copies of dead letters.
type letters struct{ DeadLetterConfig }

// letters returns the configuration for the deliveries: nil if nothing is copied.
func (c DeadLetterConfig) letters() delivery.Letters {
	if c.Publisher == nil {
		return nil
	}
	return letters{c}
}

// Publish implements delivery.Letters.
func (c letters) Publish(ctx context.Context, l delivery.Letter) error {
	msg := message.NewMessage(l.Message.UUID, bytes.Clone(l.Message.Payload)) // the publisher may change it
	for name, value := range l.Message.Metadata {
		msg.Metadata.Set(name, value)
	}
	msg.Metadata.Set(MetadataConsumer, l.Consumer.String())
	msg.Metadata.Set(MetadataTopic, l.Topic)
	msg.Metadata.Set(MetadataClass, string(l.Class))
	if l.Error != "" {
		msg.Metadata.Set(MetadataError, text.Quoted(text.Cut(l.Error, stores.MaxHistoryErrorBytes)))
	}
	msg.Metadata.Set(MetadataAttempts, strconv.Itoa(l.Attempts))
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if key := l.Message.Facts.Key; key != nil {
		ctx = brokers.WithKey(ctx, msg, bytes.Clone(key))
	}
	msg.SetContext(ctx)
	return refusedForGood(callback.Call("the publisher", func() error { return c.Publisher.Publish(c.Topic, msg) }))
}
