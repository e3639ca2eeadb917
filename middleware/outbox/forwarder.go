package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// DefaultForwarderTopic is the default topic of Watermill's forwarder.Publisher.
const DefaultForwarderTopic = "forwarder_topic"

// Forwarder unwraps the envelopes of Watermill's Forwarder, which a forwarder.Publisher writes:
// their messages are published to their own topics, with their own ids and metadata. Messages to
// other topics stay as they are.
type Forwarder struct {
	Topic string // the topic of envelopes; "" is DefaultForwarderTopic
}

// Publisher decorates a publisher of the relay, or an outbox.Publisher inside a
// forwarder.Publisher, where destinations, topics and order keys are then those of the unwrapped
// message. An unreadable envelope is refused with an error that wraps brokers.ErrUnencodable.
func (f Forwarder) Publisher(p message.Publisher) message.Publisher {
	f.Topic = cmp.Or(f.Topic, DefaultForwarderTopic)
	unwrapping := forwarded{p, f.Topic}
	if each, ok := p.(brokers.EachPublisher); ok {
		return eachForwarded{unwrapping, each}
	}
	return unwrapping
}

type forwarded struct {
	message.Publisher
	topic string
}

// inner returns the decorated publisher.
func (p forwarded) inner() message.Publisher { return p.Publisher }

// Publish implements message.Publisher.
func (p forwarded) Publish(topic string, messages ...*message.Message) error {
	if topic != p.topic {
		return p.Publisher.Publish(topic, messages...) //nolint:wrapcheck // the publisher's own error
	}
	var errs []error
	topics := make([]string, len(messages))
	unwrapped := make([]*message.Message, len(messages))
	for i, msg := range messages {
		var err error
		topics[i], unwrapped[i], err = unwrap(msg)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, msg := range unwrapped {
		if err := p.Publisher.Publish(topics[i], msg); err != nil {
			return err //nolint:wrapcheck // the publisher's own error
		}
	}
	return nil
}

type eachForwarded struct {
	forwarded
	each brokers.EachPublisher
}

// PublishEach implements brokers.EachPublisher.
func (p eachForwarded) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	if topic != p.topic {
		return p.each.PublishEach(ctx, topic, messages...)
	}
	errs := make([]error, len(messages))
	byTopic, of := make(map[string][]*message.Message), make(map[string][]int)
	for i, envelope := range messages {
		to, msg, err := unwrap(envelope)
		if errs[i] = err; err == nil {
			byTopic[to], of[to] = append(byTopic[to], msg), append(of[to], i)
		}
	}
	for to, unwrapped := range byTopic {
		for n, err := range p.each.PublishEach(ctx, to, unwrapped...) {
			errs[of[to][n]] = err
		}
	}
	return errs
}

func unwrap(msg *message.Message) (topic string, _ *message.Message, err error) {
	var envelope struct {
		Topic    string            `json:"destination_topic"`
		UUID     string            `json:"uuid"`
		Payload  []byte            `json:"payload"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(msg.Payload, &envelope); err != nil {
		return "", nil, fmt.Errorf("outbox: Forwarder: message %q is no envelope: %w: %w", msg.UUID, brokers.ErrUnencodable, err)
	}
	if envelope.Topic == "" {
		return "", nil, fmt.Errorf("outbox: Forwarder: the envelope of message %q names no topic: %w", msg.UUID, brokers.ErrUnencodable)
	}
	unwrapped := message.NewMessageWithContext(msg.Context(), envelope.UUID, envelope.Payload)
	for name, value := range envelope.Metadata {
		unwrapped.Metadata.Set(name, value)
	}
	return envelope.Topic, unwrapped, nil
}
