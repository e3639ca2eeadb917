// Package keep converts a message that is not completed to its kept form and back.
package keep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// Message is a message as it arrived, or as a codec encoded it. What it refers to never changes.
type Message struct {
	UUID     string
	Metadata map[string]string
	Payload  []byte
	Facts    stores.Facts
}

// size returns what Keeper.MaxBytes counts.
func (m Message) size() int {
	size := len(m.Payload) + len(m.Facts.Key) + len(m.Facts.NativeID)
	for name, value := range m.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// Codec transforms kept messages. Its functions are the program's. They change neither the UUID nor
// the facts, except the key.
type Codec struct {
	Name           string
	Encode, Decode func(context.Context, Message) (Message, error) // Decode may be nil
}

// Keeper says what is kept of messages.
type Keeper struct {
	Off      bool
	MaxBytes int    // 0: no limit
	Codec    *Codec // nil: none
	Timeout  time.Duration
}

// CanPark reports whether a message can be run from its kept form.
func (k *Keeper) CanPark(m Message) bool { return k.State(m) == stores.ContentKept }

// State returns what is kept of a message if its codec accepts it.
func (k *Keeper) State(m Message) stores.ContentState {
	switch {
	case k.Off:
		return stores.ContentOff
	case k.MaxBytes > 0 && m.size() > k.MaxBytes:
		return stores.ContentTooLarge
	case k.OneWay():
		return stores.ContentOneWay
	}
	return stores.ContentKept
}

// OneWay reports whether kept content cannot be decoded.
func (k *Keeper) OneWay() bool { return k.Codec != nil && k.Codec.Decode == nil }

// Content returns what is kept of a message as it arrived.
func (k *Keeper) Content(ctx context.Context, m Message) (*stores.Content, error) {
	c := &stores.Content{State: k.State(m), UUID: m.UUID}
	if c.State != stores.ContentKept && c.State != stores.ContentOneWay {
		return c, nil
	}
	kept, codec, err := k.Encode(ctx, m)
	c.Metadata, c.Payload, c.Facts, c.Codec = kept.Metadata, kept.Payload, kept.Facts, codec
	return c, err
}

// Encode passes a message through the codec, if there is one, and returns the codec's name.
func (k *Keeper) Encode(ctx context.Context, m Message) (kept Message, codec string, err error) {
	if k.Codec == nil {
		return m, "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	m.Metadata = maps.Clone(m.Metadata)
	m.Facts.KeyWasNil, m.Facts.PayloadWasNil = m.Facts.Key == nil, m.Payload == nil
	err = callback.Call("Encode", func() error {
		var err error
		kept, err = k.Codec.Encode(ctx, m)
		return err
	})
	if err != nil {
		return m, k.Codec.Name, fmt.Errorf("middleware: codec %q: %w", k.Codec.Name, err)
	}
	return kept, k.Codec.Name, nil
}

var errOtherCodec = errors.New("no such codec is configured")

// Restore returns a message from its kept form. With an error, the message has only the UUID and
// the facts that no codec changes.
func (k *Keeper) Restore(ctx context.Context, c stores.Content) (Message, error) {
	kept := Message{UUID: c.UUID, Metadata: c.Metadata, Payload: c.Payload, Facts: c.Facts}
	if c.Codec == "" {
		return kept, nil
	}
	restored, err := k.decode(ctx, c.Codec, kept)
	restored.UUID = c.UUID
	key := restored.Facts.Key
	restored.Facts = c.Facts
	restored.Facts.Key, restored.Facts.KeyWasNil, restored.Facts.PayloadWasNil = key, false, false
	if err == nil {
		restored.Payload = asBefore(restored.Payload, c.Facts.PayloadWasNil)
		if c.Facts.KeyWasNil || c.Facts.Key != nil { // otherwise the codec dropped it or moved it elsewhere
			restored.Facts.Key = asBefore(restored.Facts.Key, c.Facts.KeyWasNil)
		}
	}
	return restored, err
}

// asBefore restores the difference between nil and empty, which many codecs lose.
func asBefore(b []byte, wasNil bool) []byte {
	if len(b) > 0 {
		return b
	}
	if wasNil {
		return nil
	}
	return []byte{}
}

func (k *Keeper) decode(ctx context.Context, name string, kept Message) (m Message, err error) {
	if k.Codec == nil || k.Codec.Name != name || k.Codec.Decode == nil {
		return Message{}, fmt.Errorf("middleware: codec %q: %w", name, errOtherCodec)
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	err = callback.Apart("Decode", func() error {
		var err error
		m, err = k.Codec.Decode(ctx, kept)
		return err
	})
	if err != nil {
		return Message{}, fmt.Errorf("middleware: codec %q: %w", name, err)
	}
	return m, nil
}
