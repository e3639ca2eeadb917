package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/publishing"
)

// publishGrace is how much longer Publish waits than its records may take, so that the client
// reports each result.
const publishGrace = 5 * time.Second

// publisher waits until all in-sync replicas have each message. Errors wrap brokers.ErrClosed,
// [ErrNoTopic], or brokers.ErrUnavailable if the broker did not answer within Publish.Timeout.
type publisher struct {
	publishing.Publisher[*kgo.Record]

	broker *Broker
	client *kgo.Client
}

func newPublisher(b *Broker) *publisher {
	p := &publisher{broker: b, client: b.producer}
	p.Package, p.Timeout, p.Open = pkg, b.config.Publish.Timeout+publishGrace, p.open
	return p
}

func (p *publisher) open(ctx context.Context, topic string) (publishing.Topic[*kgo.Record], error) {
	if err := p.topic(ctx, topic); err != nil {
		return nil, fmt.Errorf("kafka: publish to %q: %w", topic, err)
	}
	return &outlet{p, topic}, nil
}

// outlet is a topic to publish to.
type outlet struct {
	*publisher
	topic string
}

// Encode implements publishing.Topic.
func (o *outlet) Encode(msg *message.Message) (*kgo.Record, error) {
	return o.broker.config.Publish.newRecord(o.topic, msg)
}

// topic prepares for the first message to a topic. It creates the topic, if that is configured, and
// reads its largest batch size: a batch that is too large is refused as a whole. If the broker does
// not answer, the client waits for it.
func (p *publisher) topic(ctx context.Context, topic string) error {
	if topic == "" {
		return errNoTopicName
	}
	if _, known := p.broker.published.Load(topic); known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.broker.config.Publish.Timeout)
	defer cancel()
	if p.broker.config.Publish.CreateTopics {
		if _, err := p.broker.ensureTopic(ctx, topic, 0); errors.Is(err, brokers.ErrUnavailable) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if limit, ok := p.broker.topicLimit(ctx, topic); ok {
		p.broker.published.Store(topic, limit)
	}
	return nil
}

// maxBytes returns the largest batch for a topic, in bytes.
func (b *Broker) maxBytes(topic string) int32 {
	limit := min(b.config.Publish.MaxBytes, largestBatch)
	if n, ok := b.published.Load(topic); ok && n.(int) >= smallestBatch {
		limit = min(limit, n.(int))
	}
	return int32(limit) //nolint:gosec // at most largestBatch
}

// The client accepts limits in this range.
const (
	smallestBatch = 512
	largestBatch  = 64 << 20
)

var errNoAnswer = errors.New("the broker has not answered")

// Send implements publishing.Topic. The client keeps the records when ctx ends: dropping one would
// also drop those of other calls.
func (o *outlet) Send(ctx context.Context, records []*kgo.Record, _ bool) []error {
	type answer struct {
		i   int
		err error
	}
	answers := make(chan answer, len(records))
	errs := slices.Repeat([]error{errNoAnswer}, len(records))
	for i, r := range records {
		o.client.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) { answers <- answer{i, err} })
	}
	for left := len(records); left > 0; {
		select {
		case a := <-answers:
			errs[a.i] = a.err
			left--
		case <-ctx.Done():
			left = 0
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = o.explain(o.topic, records[i], err)
		}
		if errors.Is(errs[i], ErrNoTopic) {
			// The client keeps the topic that it knew. If another topic has the name now, the next
			// call finds it.
			o.client.PurgeTopicsFromProducing(o.topic)
		}
	}
	return errs
}

// explain adds a fix and a sentinel to an error.
func (p *publisher) explain(topic string, r *kgo.Record, err error) error {
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return fmt.Errorf("%w: %w", brokers.ErrClosed, err)
	case errors.Is(err, kerr.MessageTooLarge):
		return p.tooLarge(topic, r, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		p.broker.published.Delete(topic)
		return fmt.Errorf("%w: %w: create it, or let it be created with create_topics=true", ErrNoTopic, err)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, errNoAnswer), errors.Is(err, kgo.ErrRecordRetries), kerr.IsRetriable(err):
		return fmt.Errorf("%w: %w within %s: publish it again when the broker is back", brokers.ErrUnavailable, err, p.broker.config.Publish.Timeout)
	default:
		return err
	}
}

// tooLarge returns an error with the message's size and the limit.
func (p *publisher) tooLarge(topic string, r *kgo.Record, err error) error {
	size, limit := size(r), int(p.broker.maxBytes(topic))
	if limit < p.broker.config.Publish.MaxBytes {
		return fmt.Errorf("%w: %w: it has about %d bytes, the topic's max.message.bytes is %d: make it smaller, or raise that", brokers.ErrTooLarge, err, size, limit)
	}
	return fmt.Errorf("%w: %w: it has about %d bytes, the limit here is %d: make it smaller, or raise max_message_bytes and the topic's max.message.bytes", brokers.ErrTooLarge, err, size, limit)
}
