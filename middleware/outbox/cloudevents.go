package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// CloudEvents adds the attributes of CloudEvents 1.0 to the metadata of messages, named as in the
// binary mode of its Kafka binding: ce_id, ce_source, ce_type and ce_specversion. Existing
// attributes stay.
type CloudEvents struct {
	Source string // the producer, such as "/orders"; required
	// Type returns ce_type; nil: the metadata field name, which cqrs sets. A message without a
	// type is refused for good.
	Type        func(topic string, msg *message.Message) string
	ContentType string // of the payload, such as "application/json"; "": none is added
	Prefix      string // the prefix of the names; "" is "ce_"
}

// Publisher decorates a publisher of the relay. The result is a brokers.EachPublisher if p is.
func (c CloudEvents) Publisher(p message.Publisher) message.Publisher {
	if c.Prefix == "" {
		c.Prefix = "ce_"
	}
	if c.Type == nil {
		c.Type = func(_ string, msg *message.Message) string { return msg.Metadata["name"] }
	}
	decorated := cloudPublisher{p, c}
	if each, ok := p.(brokers.EachPublisher); ok {
		return eachCloudPublisher{decorated, each}
	}
	return decorated
}

type cloudPublisher struct {
	message.Publisher
	events CloudEvents
}

// inner returns the decorated publisher.
func (p cloudPublisher) inner() message.Publisher { return p.Publisher }

// Publish implements message.Publisher.
func (p cloudPublisher) Publish(topic string, messages ...*message.Message) error {
	var errs []error
	for _, msg := range messages {
		errs = append(errs, p.events.mark(topic, msg))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.Publisher.Publish(topic, messages...) //nolint:wrapcheck // the publisher's own error
}

type eachCloudPublisher struct {
	cloudPublisher
	each brokers.EachPublisher
}

// PublishEach implements brokers.EachPublisher.
func (p eachCloudPublisher) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	var (
		errs   = make([]error, len(messages))
		marked []*message.Message
		of     []int
	)
	for i, msg := range messages {
		if errs[i] = p.events.mark(topic, msg); errs[i] == nil {
			marked, of = append(marked, msg), append(of, i)
		}
	}
	if len(marked) > 0 {
		for n, err := range p.each.PublishEach(ctx, topic, marked...) {
			errs[of[n]] = err
		}
	}
	return errs
}

func (c *CloudEvents) mark(topic string, msg *message.Message) error {
	if msg == nil {
		return nil // the publisher refuses it
	}
	if msg.Metadata == nil {
		msg.Metadata = make(message.Metadata)
	}
	add := func(name, value string) {
		if value != "" && msg.Metadata[name] == "" {
			msg.Metadata[name] = value
		}
	}
	add(c.Prefix+"specversion", "1.0")
	add(c.Prefix+"id", msg.UUID)
	add(c.Prefix+"source", c.Source)
	if msg.Metadata[c.Prefix+"type"] == "" {
		add(c.Prefix+"type", c.Type(topic, msg))
	}
	add("content-type", c.ContentType)
	for _, required := range []string{"id", "source", "type"} {
		if msg.Metadata[c.Prefix+required] == "" {
			return fmt.Errorf("outbox: CloudEvents: message %q has no %s: %w", msg.UUID, required, brokers.ErrUnencodable)
		}
	}
	return nil
}
