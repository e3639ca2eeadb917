package middleware

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/keep"
)

// Arrival is a middleware around the inbox. It records the message as it arrives, before
// middlewares between Arrival and the inbox decrypt it, unpack it or change its UUID. The inbox
// keeps, quarantines and copies the recorded message. Without Arrival it uses the message as it
// reaches the inbox.
//
// Add all middlewares between Arrival and the inbox to [RetryWorkerConfig].Middlewares, too: the
// first of them gets the kept message. A worker and a router.Service have an Arrival of their
// own, outermost. If there are several, the innermost counts.
//
// When the next handler returns, Arrival restores the message and its context, so that a Retry
// middleware around Arrival starts from the arrived message. A second call with the same message
// waits for the first, for at most 5 minutes, and is then given back with [ErrNotNow]. Arrival
// copies the payload. It is safe for concurrent use.
func Arrival(next message.HandlerFunc) message.HandlerFunc {
	turns := newTurns()
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := turns.take(msg, arrivalLimit); err != nil {
			return nil, err
		}
		defer turns.end(msg)
		ctx, payload := msg.Context(), msg.Payload
		a := &arrived{msg: msg, uuid: msg.UUID, payload: bytes.Clone(payload), metadata: maps.Clone(msg.Metadata)}
		defer func() {
			if !bytes.Equal(payload, a.payload) { // a middleware changed it in place
				payload = bytes.Clone(a.payload)
			}
			msg.UUID, msg.Payload = a.uuid, payload
			if !maps.Equal(msg.Metadata, a.metadata) {
				msg.Metadata = maps.Clone(a.metadata)
			}
			msg.SetContext(ctx)
		}()
		msg.SetContext(context.WithValue(ctx, arrivedKey{}, a))
		return next(msg)
	}
}

// arrivalLimit is the default of HoldConfig.Limit, because Arrival has no inbox to ask.
const arrivalLimit = 5 * time.Minute

type arrivedKey struct{}

// arrived is a message as it arrived. It is immutable.
type arrived struct {
	msg      *message.Message // contexts travel to other messages
	uuid     string
	payload  []byte
	metadata message.Metadata
}

// Message implements delivery.Handler: it returns the message as it arrived at the inbox, or at
// an Arrival around it.
func (v *visit) Message() keep.Message {
	if a, ok := v.arrival.Contexts.Shutdown.Value(arrivedKey{}).(*arrived); ok && a.msg == v.msg {
		return keep.Message{UUID: a.uuid, Metadata: a.metadata, Payload: a.payload, Facts: v.facts}
	}
	return keep.Message{UUID: v.was.uuid, Metadata: v.was.metadata(), Payload: v.was.payload, Facts: v.facts}
}

// snapshot is a message as it reached the inbox, before the handler and inner middlewares change
// it. The metadata are a list, so that it can be reused.
type snapshot struct {
	uuid    string
	payload []byte
	fields  []string // names and values of the metadata
}

func (s *snapshot) take(msg *message.Message) {
	s.uuid, s.payload, s.fields = msg.UUID, msg.Payload, s.fields[:0]
	for name, value := range msg.Metadata {
		s.fields = append(s.fields, name, value)
	}
}

// metadata returns a new map.
func (s *snapshot) metadata() message.Metadata {
	all := make(message.Metadata, len(s.fields)/2)
	for i := 0; i < len(s.fields); i += 2 {
		all[s.fields[i]] = s.fields[i+1]
	}
	return all
}

func (s *snapshot) field(name string) string {
	for i := 0; i < len(s.fields); i += 2 {
		if s.fields[i] == name {
			return s.fields[i+1]
		}
	}
	return ""
}

// restore undoes what a run changed in its message, so that the next run gets what arrived: a
// Retry after a committed run then finds its duplicate. Bytes changed in place are not undone:
// see Changed. Unchanged fields are not written, because another goroutine may read them.
func (s *snapshot) restore(msg *message.Message) {
	if msg.UUID != s.uuid {
		msg.UUID = s.uuid
	}
	if len(msg.Payload) != len(s.payload) || (msg.Payload == nil) != (s.payload == nil) || len(s.payload) > 0 && &msg.Payload[0] != &s.payload[0] {
		msg.Payload = s.payload
	}
	same := len(msg.Metadata) == len(s.fields)/2
	for i := 0; same && i < len(s.fields); i += 2 {
		value, has := msg.Metadata[s.fields[i]]
		same = has && value == s.fields[i+1]
	}
	if !same {
		msg.Metadata = s.metadata()
	}
}

// forget releases what the snapshot refers to, and keeps its list unless it is large.
func (s *snapshot) forget() {
	const most = 64
	if cap(s.fields) > most {
		s.fields = nil
	}
	clear(s.fields)
	*s = snapshot{fields: s.fields[:0]}
}
