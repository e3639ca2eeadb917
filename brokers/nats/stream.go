package nats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// advisories is the stream that keeps the server's advisories about messages at their delivery
// limit. Each is sent once, and lost if nobody listens.
const (
	advisories        = "millpond_max_deliveries"
	advisorySubject   = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	advisoriesMaxAge  = 90 * 24 * time.Hour
	longestNameOfNATS = 200
)

// stream returns the name of the stream with a topic's messages.
func (b *Broker) stream(ctx context.Context, topic string) (string, error) {
	if !validSubject(topic) {
		return "", fmt.Errorf("%w: %q", ErrTopic, topic)
	}
	name, err := b.streamOf(ctx, topic, jetstream.StreamConfig{Name: safeName(topic), Subjects: []string{topic}})
	if err != nil {
		return "", fmt.Errorf("nats: the stream of topic %q: %w", topic, err)
	}
	return name, nil
}

// streamOf returns the stream for a subject. It creates a missing one if that is configured.
func (b *Broker) streamOf(ctx context.Context, subject string, config jetstream.StreamConfig) (string, error) {
	name, err := b.js.StreamNameBySubject(ctx, subject)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return name, unavailable(err)
	}
	if !b.config.CreateStreams {
		return "", fmt.Errorf("%w: create one, or set create_streams=true", ErrNoStream)
	}
	config.Replicas = b.config.Replicas
	_, err = b.js.CreateStream(ctx, config)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return "", unavailable(err)
	}
	name, err = b.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", fmt.Errorf("%w: stream %q exists with other subjects: add it, or create another stream", ErrNoStream, config.Name)
	}
	return name, unavailable(err)
}

// consumer returns a group's durable consumer. It creates a missing one.
func (b *Broker) consumer(ctx context.Context, stream, topic, group string) (jetstream.Consumer, error) {
	want := b.consumerConfig(topic, group)
	consumer, err := b.js.Consumer(ctx, stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = b.js.CreateConsumer(ctx, stream, want)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: consumer %q of stream %q: %w", want.Durable, stream, unavailable(err))
	}
	if err := differs(consumer.CachedInfo().Config, want); err != nil {
		return nil, fmt.Errorf("%w: %q of stream %q: %w: change it, or what is configured here", ErrConsumerDiffers, want.Durable, stream, err)
	}
	if want.MaxDeliver > 0 {
		return consumer, b.keepAdvisories(ctx, stream, want.Durable)
	}
	return consumer, nil
}

func (b *Broker) consumerConfig(topic, group string) jetstream.ConsumerConfig {
	c := &b.config.Consume
	config := jetstream.ConsumerConfig{
		Durable:       safeName(strings.NewReplacer("{topic}", topic, "{group}", group).Replace(c.Consumer)),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.AckWait,
		FilterSubject: topic,
		MaxDeliver:    -1,
		MaxAckPending: -1, // subscribers pull no more than they have slots
	}
	if c.DeliveryLimit > 0 {
		config.MaxDeliver = c.DeliveryLimit
	}
	if c.Ordered {
		config.MaxAckPending = 1
	}
	if c.StartAtNewest {
		config.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	return config
}

// differs returns the first setting that would break a promise of this package.
func differs(has, want jetstream.ConsumerConfig) error {
	unlimited := func(n int) int { return max(n, 0) } // 0 and -1 mean the same
	switch {
	case has.AckPolicy != want.AckPolicy:
		return fmt.Errorf("its ack policy is %q, and must be %q", has.AckPolicy, want.AckPolicy)
	case has.FilterSubject != want.FilterSubject:
		return fmt.Errorf("it filters %q, the topic is %q", has.FilterSubject, want.FilterSubject)
	case unlimited(has.MaxDeliver) != unlimited(want.MaxDeliver):
		return fmt.Errorf("its max_deliver is %d, delivery_limit here is %d", has.MaxDeliver, unlimited(want.MaxDeliver))
	case want.MaxAckPending == 1 && has.MaxAckPending != 1:
		return fmt.Errorf("its max_ack_pending is %d, ordered=true needs 1", has.MaxAckPending)
	case len(has.BackOff) > 0:
		return errors.New("it has a backoff, which gives handlers less time than ack_wait: remove it, the pauses are chosen here")
	case has.DeliverSubject != "":
		return errors.New("it is a push consumer, and must be a pull consumer")
	}
	return nil
}

// keepAdvisories creates the stream that keeps the server's advisories.
func (b *Broker) keepAdvisories(ctx context.Context, stream, consumer string) error {
	subject := advisorySubject + stream + "." + consumer
	_, err := b.streamOf(ctx, subject, jetstream.StreamConfig{Name: advisories, Subjects: []string{advisorySubject + ">"}, MaxAge: advisoriesMaxAge})
	if err != nil {
		return fmt.Errorf("nats: the stream of %q, which reports messages at their delivery limit: %w", subject, err)
	}
	return nil
}

// validSubject reports whether messages can be published to a subject.
func validSubject(subject string) bool {
	for word := range strings.SplitSeq(subject, ".") {
		if word == "" || word == "*" || word == ">" {
			return false
		}
	}
	return !strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// safeName returns s as the name of a stream or consumer. A hash keeps names apart that would look
// alike, and shortens long ones.
func safeName(s string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s)
	if safe == s && len(s) <= longestNameOfNATS {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return safe[:min(len(safe), longestNameOfNATS)] + "-" + hex.EncodeToString(sum[:6])
}
