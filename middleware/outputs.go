package middleware

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/stores"
)

// Outputs lets handlers publish: messages that they return, if the handler's publisher in the
// router is outbox.Publisher(destination), and messages that they publish through such a
// publisher, as cqrs buses do. The attempt's commit writes them, in its transaction; the relay of
// package outbox publishes them afterwards. Outputs of a run that is not committed are never
// published, and a duplicate publishes nothing. The zero value is ready to use.
//
// Returned messages come after those that the handler published while it ran. An output gets the
// correlation_id of the handler's message, that message's UUID as causation_id, and the trace,
// unless it has its own.
type Outputs struct {
	// Destinations are the names under which the relay knows its publishers. If set, another name
	// is refused with ErrUnknownDestination. nil: messages for an unknown name wait in the
	// outbox.
	Destinations map[string]Destination

	// OrderKey, Type and Encode work as in stores.PublisherConfig. The commit takes the order
	// key's lock.
	OrderKey func(stores.Output) []byte
	Type     func(stores.Output) string
	Encode   func(context.Context, stores.Output) (stores.Output, error)

	// IDs says where ids come from; the default is OutputIDsOwn.
	IDs OutputIDs

	// Relay is told of commits, so that it publishes at once, such as an *outbox.Relay. nil:
	// relays poll.
	Relay interface{ Poke(numbers ...int64) }
}

// Destination describes a publisher.
type Destination struct {
	// Topic is the topic of messages without one.
	Topic string `config:"topic" example:"shipments" about:"The topic of messages for which the program names none."`
	// Topics are the allowed topics. Another one is refused with ErrUnknownTopic. nil: any.
	Topics []string `config:"topics" example:"[shipments, returns]" about:"The topics that handlers may publish to. Other topics are refused. Default: any."`
	// MaxBytes bounds payload and metadata together. Larger messages are refused with
	// ErrOutputTooLarge, because no publisher could send them. 0: no bound.
	MaxBytes int `config:"max_bytes" example:"1000000" check:"positive" about:"The largest message, payload and metadata together, in bytes. Larger ones are refused. Default: no limit; messages that the broker refuses become dead letters."`
}

// Check returns an error for a destination or a topic that is not among Destinations. To check
// what producers write, too, give it to CheckOutputs of their store (stores.OutputChecker).
func (c *Outputs) Check(destination, topic string) error {
	to, known := c.Destinations[destination]
	switch {
	case c.Destinations != nil && !known:
		return fmt.Errorf("%w: %q is not in Outputs.Destinations", ErrUnknownDestination, destination)
	case topic != "" && len(to.Topics) > 0 && !slices.Contains(to.Topics, topic):
		return fmt.Errorf("%w: %q is not one of Destinations[%q].Topics", ErrUnknownTopic, topic, destination)
	}
	return nil
}

// OutputIDs says where the UUIDs of outputs come from.
//
// A derived id is computed from consumer, message id, destination, topic, order key, and the
// position among the outputs with the same destination, topic and order key. So it stays the same
// when a message is handled again after a failover lost its commit but not its published outputs.
// Handlers that publish in another order, or other bytes, on a second run then give one id to two
// messages: an inbox downstream sees a conflict and quarantines the second one.
type OutputIDs string

const (
	// OutputIDsOwn keeps the handler's UUID. An empty one is derived.
	OutputIDsOwn OutputIDs = ""
	// OutputIDsDerived derives all ids. The handler's own UUID is kept in the metadata field
	// MetadataOutputID.
	OutputIDsDerived OutputIDs = "derived"
)

// Metadata of outputs.
const (
	MetadataCausationID = "causation_id"       // the UUID of the message whose handler published it
	MetadataOutputID    = "millpond_output_id" // the handler's own UUID
)

// target is where a handler's returned messages go.
type target struct {
	destination, topic string
	publisher          string // its name in the router
	known              bool   // it is an outbox.Publisher, or the row says so
}

// targets has the targets of the handlers that have received a message in this process.
type targets struct{ by sync.Map } // handler → target

// aim finds out where the handler publishes. The router of a retry worker does not know.
func (v *visit) aim() {
	if v.in.config.Outputs == nil {
		return
	}
	if v.retry != nil {
		v.facts.PublishTopic, v.facts.PublishTo = v.retry.Row.Content.Facts.PublishTopic, v.retry.Row.Content.Facts.PublishTo
		return
	}
	t := v.routed()
	if !t.known {
		return
	}
	v.facts.PublishTopic, v.facts.PublishTo = t.topic, t.destination
	if was, ok := v.in.handlers.targets.by.Load(v.handler); !ok || was != t {
		v.in.handlers.targets.by.Store(v.handler, t)
	}
}

// routed returns the target by the handler's publisher in the router.
func (v *visit) routed() (t target) {
	ctx := v.arrival.Contexts.Shutdown
	t.topic, t.publisher = message.PublishTopicFromCtx(ctx), message.PublisherNameFromCtx(ctx)
	t.destination, t.known = capture.Destination(t.publisher)
	t.topic = cmp.Or(t.topic, v.in.config.Outputs.Destinations[t.destination].Topic)
	return t
}

var errNoTarget = errors.New("middleware: the destination of this parked message's outputs is not known yet: the handler's router must have received a message in this process, with the handler's outbox.Publisher")

// target returns where the handler's returned messages go.
func (v *visit) target() (target, error) {
	switch {
	case v.in.config.Outputs == nil:
		return target{}, fmt.Errorf("%w; set InboxConfig.Outputs", ErrOutputs)
	case v.retry == nil:
		t := v.routed()
		if !t.known {
			return t, fmt.Errorf("%w; its publisher in the router is %q: use outbox.Publisher with the name of a destination, and give that publisher to the relay", ErrOutputs, t.publisher)
		}
		return t, nil
	case v.facts.PublishTopic != "":
		return target{topic: v.facts.PublishTopic, destination: v.facts.PublishTo, known: true}, nil
	}
	if t, ok := v.in.handlers.targets.by.Load(v.handler); ok {
		return t.(target), nil //nolint:forcetypeassert // the map has no other type
	}
	return target{}, errNoTarget
}

// capture takes the handler's returned messages.
func (v *visit) capture(run *capture.Run, returned []*message.Message) error {
	t, err := v.target()
	if err != nil {
		return fmt.Errorf("%w (%d returned); the attempt is rolled back", err, len(returned))
	}
	return run.Publish(t.destination, t.topic, returned...)
}

// output makes an output of a message and keeps no reference to it.
func (v *visit) output(destination, topic string, position func(topic string, orderKey []byte) int, msg *message.Message) (stores.Output, error) {
	c := v.in.config.Outputs
	if msg == nil {
		return stores.Output{}, fmt.Errorf("%w: the message is nil", stores.ErrInvalidOutput)
	}
	to := c.Destinations[destination]
	topic = cmp.Or(topic, to.Topic)
	if err := c.Check(destination, topic); err != nil {
		return stores.Output{}, err
	}
	o := stores.Output{ID: msg.UUID, Destination: destination, Topic: topic, Metadata: v.metadata(msg.Metadata), Payload: bytes.Clone(msg.Payload)}
	o.TraceParent, _ = stores.ParseTraceParent(o.Metadata["traceparent"])
	if c.OrderKey != nil {
		o.OrderKey = c.OrderKey(o)
	}
	if at := position(topic, o.OrderKey); o.ID == "" || c.IDs == OutputIDsDerived {
		if o.ID != "" {
			o.Metadata[MetadataOutputID] = o.ID
		}
		o.ID = v.derive(&o, at)
	}
	if c.Type != nil {
		o.Type = c.Type(o)
	}
	if size := sizeOf(&o); to.MaxBytes > 0 && size > to.MaxBytes {
		return o, fmt.Errorf("%w: it has %d bytes, %q takes %d", ErrOutputTooLarge, size, destination, to.MaxBytes)
	}
	if c.Encode == nil {
		return o, nil
	}
	return c.Encode(msg.Context(), o)
}

// metadata returns the metadata of an output, with references to the handler's message.
func (v *visit) metadata(own message.Metadata) map[string]string {
	all := maps.Clone(own)
	if all == nil {
		all = make(message.Metadata)
	}
	inherit := func(name, value string) {
		if all[name] == "" && value != "" {
			all[name] = value
		}
	}
	const correlation = "correlation_id" // of Watermill's CorrelationID
	inherit(correlation, v.was.field(correlation))
	inherit(MetadataCausationID, v.was.uuid)
	if trace := v.arrival.Claim.TraceParent; all["traceparent"] == "" && !trace.IsZero() {
		all["traceparent"] = trace.String()
		inherit("tracestate", v.was.field("tracestate"))
	}
	return all
}

func sizeOf(o *stores.Output) int {
	size := len(o.Payload)
	for name, value := range o.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// derive computes an id. The computation must never change between versions.
func (v *visit) derive(o *stores.Output, position int) string {
	key := &v.arrival.Claim.Key
	id := key.ID
	if v.facts.RanAs != nil {
		id = v.facts.RanAs
	}
	var made []byte
	for _, part := range [][]byte{
		[]byte(key.Consumer.Service), []byte(key.Consumer.Handler), id, []byte(o.Destination), []byte(o.Topic), o.OrderKey,
	} {
		made = fmt.Appendf(made, "%d:%s,", len(part), part)
	}
	uuid := sha256.Sum256(fmt.Appendf(made, "%d", position))
	uuid[6], uuid[8] = uuid[6]&0x0f|0x80, uuid[8]&0x3f|0x80 // a UUID of version 8, whose content is free
	return fmt.Sprintf("%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:16])
}

// poke tells the relay of a commit, even if its outcome is unknown.
func (v *visit) poke(commit error) {
	c := v.in.config.Outputs
	if !v.diary.said || c.Relay == nil || errors.Is(commit, stores.ErrNotCommitted) {
		return
	}
	v.in.panics.note("Outputs.Relay.Poke", v.arrival.Claim.Key, callback.Call("it", func() error {
		c.Relay.Poke()
		return nil
	}))
}
