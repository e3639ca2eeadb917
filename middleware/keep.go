package middleware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// KeepConfig says what is kept of messages that have failed, until they are completed.
//
// A message of which less than all is kept cannot be parked: its attempts are made by
// the broker's redeliveries, and its row says why. When its budget is spent it is acked
// although it is not kept; a DeadLetterConfig can keep a copy elsewhere.
type KeepConfig struct {
	// Off keeps neither payload nor metadata.
	Off bool
	// MaxBytes is the largest message that is kept, payload and metadata together.
	// Default: what Limits let pass.
	MaxBytes int
	// Codec, if set, is what kept messages go through, those in quarantine included.
	Codec *Codec
	// Timeout is the deadline of the context of each call of the codec. Default: 10 s.
	Timeout time.Duration
}

// Kept is the part of a message that a [Codec] changes.
type Kept struct {
	Metadata message.Metadata
	Payload  []byte
}

// Codec encrypts, redacts or moves elsewhere what is kept of messages. Its functions
// must be safe for concurrent use and must not change what they are given.
type Codec struct {
	// Name is stored with each message. Required: a message is decoded only by the codec
	// of the same name.
	Name string
	// Encode is called before a message is kept. After an error the delivery is held and
	// Encode called again, some times. Then it depends on the message:
	//
	//   - One with attempts left is left to the broker, and the attempt counts.
	//   - One that has failed for good is not run again. Its redeliveries call Encode again,
	//     for RetryPolicy.MaxAge; as long again it is given back as failed, so that a broker
	//     with a limit of deliveries takes it aside; then it is acked without having been
	//     kept. Its row says "refused".
	//   - One for the quarantine is given back as failed, for RetryPolicy.MaxUncounted
	//     deliveries, or held for HoldConfig.Limit if no broker counts them, and is then
	//     there without its content.
	//
	// An error that is marked with [Permanent] says that this codec will never take this
	// message: one that has failed for good, or is for the quarantine, ends so at once. The
	// log says of each message that it is not kept.
	Encode func(context.Context, Kept) (Kept, error)
	// Decode undoes Encode, before an attempt. After an error the attempt has failed,
	// with stores.ClassUnreadable. nil: what was encoded is for people to read only, and
	// such messages are never parked.
	Decode func(context.Context, Kept) (Kept, error)
}

func (k *KeepConfig) validate(bad func(format string, args ...any)) {
	if k.MaxBytes < 0 {
		bad("Keep.MaxBytes is %d: use a positive number, or 0 for the default", k.MaxBytes)
	}
	if k.Codec == nil {
		return
	}
	if k.Codec.Name == "" {
		bad("Keep.Codec.Name is empty: name the codec, and never give the name to another one")
	}
	if k.Codec.Encode == nil {
		bad("Keep.Codec.Encode is nil: set it, or leave Codec nil")
	}
}

// canPark reports whether a message of this size can be run from what is kept of it.
func (k *KeepConfig) canPark(size int) bool { return k.state(size) == stores.ContentKept }

func (k *KeepConfig) state(size int) stores.ContentState {
	switch {
	case k.Off:
		return stores.ContentOff
	case k.MaxBytes > 0 && size > k.MaxBytes:
		return stores.ContentTooLarge
	case k.Codec != nil && k.Codec.Decode == nil:
		return stores.ContentOneWay
	}
	return stores.ContentKept
}

// size is what MaxBytes counts.
func (d *delivery) size() int {
	was := d.origin()
	size := len(was.payload)
	for name, value := range was.metadata {
		size += len(name) + len(value)
	}
	return size
}

// content returns what is to be kept of the message as it arrived.
func (d *delivery) content() (*stores.Content, error) {
	keep := &d.in.config.Keep
	c := &stores.Content{State: keep.state(d.size()), UUID: d.origin().uuid}
	if c.State != stores.ContentKept && c.State != stores.ContentOneWay {
		return c, nil
	}
	kept, codec, err := d.encode()
	c.Metadata, c.Payload, c.Codec = kept.Metadata, kept.Payload, codec
	return c, err
}

// encode passes the message through the codec, if there is one.
func (d *delivery) encode() (kept Kept, codec string, err error) {
	was := d.origin()
	kept = Kept{Metadata: was.metadata, Payload: was.payload}
	c := d.in.config.Keep.Codec
	if c == nil {
		return kept, "", nil
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.Keep.Timeout)
	defer cancel()
	err = callback.Call("Encode", func() error {
		var err error
		kept, err = c.Encode(ctx, Kept{Metadata: maps.Clone(was.metadata), Payload: was.payload})
		return err
	})
	if err != nil {
		return kept, c.Name, fmt.Errorf("middleware: codec %q: %w", c.Name, err)
	}
	return kept, c.Name, nil
}

// identity tells a message without an id from others in quarantine, by what arrived: a
// codec may make something else of it each time. It is keyed like a fingerprint, because
// it says as much about what the codec hides. Zero: what is kept tells.
func (d *delivery) identity(q stores.Quarantined) [sha256.Size]byte {
	if d.in.config.Keep.Codec == nil || len(q.ID) > 0 {
		return [sha256.Size]byte{}
	}
	was := d.origin()
	q.Metadata, q.Payload = was.metadata, was.payload
	hash := q.IdentityHash()
	return stores.NewFingerprint(d.in.config.Fingerprint.Key, hash[:]).Digest
}

var errOtherCodec = errors.New("no such codec is configured")

// restored returns the message that a retry worker was given.
func (in *Inbox) restored(ctx context.Context, r stores.Retry) (msg *message.Message, err error) {
	if r.Err != nil {
		return message.NewMessage(r.Content.UUID, nil), r.Err
	}
	kept := Kept{Metadata: r.Content.Metadata, Payload: r.Content.Payload}
	if r.Content.Codec != "" {
		kept, err = in.decode(ctx, r.Content.Codec, kept)
	}
	msg = message.NewMessage(r.Content.UUID, kept.Payload)
	if kept.Metadata != nil {
		msg.Metadata = kept.Metadata
	}
	return msg, err
}

func (in *Inbox) decode(ctx context.Context, name string, kept Kept) (_ Kept, err error) {
	c := in.config.Keep.Codec
	if c == nil || c.Name != name || c.Decode == nil {
		return Kept{}, fmt.Errorf("middleware: codec %q: %w", name, errOtherCodec)
	}
	ctx, cancel := context.WithTimeout(ctx, in.config.Keep.Timeout)
	defer cancel()
	err = callback.Call("Decode", func() error {
		var err error
		kept, err = c.Decode(ctx, kept)
		return err
	})
	if err != nil {
		return Kept{}, fmt.Errorf("middleware: codec %q: %w", name, err)
	}
	return kept, nil
}
