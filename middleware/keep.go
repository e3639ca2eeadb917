package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/stores"
)

// KeepConfig says what is kept of failed messages until they are completed.
//
// A message that is not kept whole cannot be parked: the broker's redeliveries make its attempts,
// and its row says why. When its budget is spent it is acked all the same; a [DeadLetterConfig]
// can keep a copy elsewhere.
type KeepConfig struct {
	// Off also drops the broker's key.
	Off bool `config:"off" default:"false" about:"Keep neither payload nor metadata. Such messages cannot be parked: the broker redelivers them."`
	// MaxBytes counts payload, metadata, and the broker's key and id together.
	MaxBytes int `config:"max_bytes" example:"1000000" check:"positive" about:"The size of the largest message that is kept. Default: all messages within the limits."`
	// Codec, if set, encodes kept messages, those in quarantine included.
	Codec *Codec
	// Timeout is the deadline of the context of each call of the codec.
	Timeout time.Duration `config:"-" default:"10s" check:"positive"`
}

// Kept is the part of a message that a [Codec] changes.
type Kept struct {
	// Key is brokers.Delivery.Key, which may be personal data, too. If Encode returns none, none
	// is kept and a retried handler gets none.
	Key []byte

	Metadata message.Metadata
	Payload  []byte
}

// Codec encrypts, redacts or moves elsewhere what is kept of messages. Its functions must be safe
// for concurrent use and must not change their arguments.
type Codec struct {
	// Name is stored with each message; only the codec with that name decodes it. Required.
	Name string
	// Encode is called before a message is kept. After an error the delivery is held and Encode
	// called again, a few times. Then:
	//
	//   - A message with attempts left stays with the broker, and the attempt counts.
	//   - A message that has failed for good is not run again. Its redeliveries call Encode,
	//     for RetryPolicy.MaxAge. For the same time again it is given back as failed, so that a
	//     broker with a delivery limit dead-letters it. Then it is acked without being kept,
	//     and its row says "refused".
	//   - A message for the quarantine is given back as failed, for RetryPolicy.MaxUncounted
	//     deliveries, or held for HoldConfig.Limit if the broker does not count them. Then it
	//     is quarantined without its content.
	//
	// An error marked with [Permanent] says that the codec never accepts this message. If the
	// message has failed for good, or is for the quarantine, it then ends so at once. The log
	// names each message that is not kept.
	Encode func(context.Context, Kept) (Kept, error)
	// Decode undoes Encode before an attempt. Whether key and payload were nil or empty is kept
	// beside them. After an error the attempt has failed with stores.ClassUnreadable. nil:
	// encoded messages are for people to read, and are never parked.
	Decode func(context.Context, Kept) (Kept, error)
}

func (k *KeepConfig) validate(bad func(name, format string, args ...any)) {
	if k.Codec == nil {
		return
	}
	if k.Codec.Name == "" {
		bad("Keep.Codec.Name", "is empty: name the codec, and never give the name to another one")
	}
	if k.Codec.Encode == nil {
		bad("Keep.Codec.Encode", "is nil: set it, or leave Codec nil")
	}
}

// keeper returns the configuration for the deliveries.
func (k *KeepConfig) keeper() *keep.Keeper {
	kept := &keep.Keeper{Off: k.Off, MaxBytes: k.MaxBytes, Timeout: k.Timeout}
	if k.Codec != nil {
		kept.Codec = &keep.Codec{Name: k.Codec.Name, Encode: recoded(k.Codec.Encode), Decode: recoded(k.Codec.Decode)}
	}
	return kept
}

// recoded adapts a function of a codec for the deliveries.
func recoded(f func(context.Context, Kept) (Kept, error)) func(context.Context, keep.Message) (keep.Message, error) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, m keep.Message) (keep.Message, error) {
		made, err := f(ctx, Kept{Key: m.Facts.Key, Metadata: m.Metadata, Payload: m.Payload})
		m.Metadata, m.Payload, m.Facts.Key = made.Metadata, made.Payload, made.Key
		return m, refusedForGood(err)
	}
}

// refusedError says that a message will never be accepted.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error        { return e.error }
func (e *refusedError) Is(target error) bool { return target == delivery.ErrRefusedForGood }

// refusedForGood marks errors that the brokers' contract calls refused for good.
func refusedForGood(err error) error {
	if errors.Is(err, brokers.ErrTooLarge) || errors.Is(err, brokers.ErrUnencodable) {
		return &refusedError{err}
	}
	return err
}

// restored returns the message of a retry, and what was known of its delivery. The broker's
// delivery count is left out.
func (in *Inbox) restored(ctx context.Context, r stores.Retry) (*message.Message, brokers.Delivery, error) {
	d := brokers.Delivery{Topic: r.Topic, Coordinates: r.Coordinates}
	if r.Err != nil {
		return message.NewMessage(r.Content.UUID, nil), d, r.Err
	}
	kept, err := in.core.Keep.Restore(ctx, r.Content)
	d.Key, d.NativeID, d.Time = kept.Facts.Key, kept.Facts.NativeID, kept.Facts.Time
	msg := message.NewMessage(kept.UUID, kept.Payload)
	if kept.Metadata != nil {
		msg.Metadata = kept.Metadata
	}
	return msg, d, err
}
