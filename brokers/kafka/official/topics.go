package official

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/IBM/sarama"
)

// topicPoll is how often a topic that is waited for is asked for.
const topicPoll = 250 * time.Millisecond

// ErrNoTopic: the topic does not exist.
var ErrNoTopic = errors.New("kafka/official: no such topic")

// ensureTopic returns nil if the topic exists, or could be created if the configuration
// allows that, or appears within wait.
func (b *Broker) ensureTopic(ctx context.Context, topic string, wait time.Duration) error {
	if topic == "" {
		return errors.New("kafka/official: the topic is empty: name one")
	}
	if _, known := b.topics.Load(topic); known {
		return nil
	}
	deadline := time.Now().Add(wait)
	for {
		err := b.findTopic(topic)
		if errors.Is(err, ErrNoTopic) && b.config.Publish.CreateTopics {
			// It is there for this client a moment later.
			err = b.createTopic(topic)
			deadline = time.Now().Add(max(wait, b.config.ConnectTimeout))
		}
		if err == nil {
			b.topics.Store(topic, true)
			return nil
		}
		if !errors.Is(err, ErrNoTopic) || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-time.After(topicPoll):
		case <-ctx.Done():
			return fmt.Errorf("%w, while waiting for it: %w", err, context.Cause(ctx))
		}
	}
}

func (b *Broker) findTopic(topic string) error {
	err := b.client.RefreshMetadata(topic)
	switch {
	case err == nil, errors.Is(err, sarama.ErrLeaderNotAvailable):
		return nil
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return fmt.Errorf("%w: %q: create it, or let it be created with create_topics=true, or waited for with wait_for_topic", ErrNoTopic, topic)
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return fmt.Errorf("kafka/official: topic %q: %w: allow the user to describe and read it, or check its name", topic, err)
	case errors.Is(err, sarama.ErrInvalidTopic):
		return fmt.Errorf("kafka/official: topic %q: %w: use up to 249 letters, digits, dots, underscores and hyphens", topic, err)
	default:
		return b.config.unreachable(err)
	}
}

// createTopic returns ErrNoTopic when it was made, since it cannot be used yet.
func (b *Broker) createTopic(topic string) error {
	detail := &sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1} // the broker's defaults
	if n := b.config.Publish.Partitions; n > 0 {
		detail.NumPartitions = int32(min(n, math.MaxInt32))
	}
	if n := b.config.Publish.Replication; n > 0 {
		detail.ReplicationFactor = int16(min(n, math.MaxInt16))
	}
	admin, err := sarama.NewClusterAdminFromClient(b.client) // closing it would close the client
	if err != nil {
		return b.config.unreachable(err)
	}
	if err := admin.CreateTopic(topic, detail, false); err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("kafka/official: creating topic %q: %w", topic, err)
	}
	return b.findTopic(topic)
}
