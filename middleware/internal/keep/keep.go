// Package keep makes of a message what is kept of it while it is not completed, and a
// message of what was kept.
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

// Message is a message as it arrived, or what a codec has made of it. Nobody changes what
// it refers to.
type Message struct {
	UUID     string
	Metadata map[string]string
	Payload  []byte
	Facts    stores.Facts
}

// size is what Keeper.MaxBytes counts.
func (m Message) size() int {
	size := len(m.Payload) + len(m.Facts.Key) + len(m.Facts.NativeID)
	for name, value := range m.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// Codec is what kept messages go through. Its functions are the program's. They leave the
// UUID as it is, and all facts but the key.
type Codec struct {
	Name           string
	Encode, Decode func(context.Context, Message) (Message, error) // Decode may be nil
}

// Keeper says what is kept.
type Keeper struct {
	Off      bool
	MaxBytes int    // 0: no limit
	Codec    *Codec // nil: none
	Timeout  time.Duration
}

// CanPark reports whether a message can be run from what is kept of it.
func (k *Keeper) CanPark(m Message) bool { return k.State(m) == stores.ContentKept }

// State is what is kept of a message, if its codec takes it.
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

// OneWay reports whether what is kept cannot be made a message again.
func (k *Keeper) OneWay() bool { return k.Codec != nil && k.Codec.Decode == nil }

// Content returns what is to be kept of a message as it arrived.
func (k *Keeper) Content(ctx context.Context, m Message) (*stores.Content, error) {
	c := &stores.Content{State: k.State(m), UUID: m.UUID}
	if c.State != stores.ContentKept && c.State != stores.ContentOneWay {
		return c, nil
	}
	kept, codec, err := k.Encode(ctx, m)
	c.Metadata, c.Payload, c.Facts, c.Codec = kept.Metadata, kept.Payload, kept.Facts, codec
	return c, err
}

// Encode passes a message through the codec, if there is one, and names it.
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

// Restore makes a message of what was kept. With an error it has the UUID, and the
// facts that no codec changes.
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
		if c.Facts.KeyWasNil || c.Facts.Key != nil { // otherwise the codec has dropped it, or has it elsewhere
			restored.Facts.Key = asBefore(restored.Facts.Key, c.Facts.KeyWasNil)
		}
	}
	return restored, err
}

// asBefore tells nil from empty, which many codecs do not.
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
