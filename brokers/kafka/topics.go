package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/pause"
)

// topicPoll is how often a missing topic is looked for.
const topicPoll = 100 * time.Millisecond

// ErrNoTopic: the topic does not exist.
var ErrNoTopic = errors.New("kafka: no such topic")

var errNoTopicName = errors.New("kafka: the topic is empty: name one")

// ensureTopic returns the topic's id if it exists, can be created (if the configuration allows it),
// or appears within wait.
func (b *Broker) ensureTopic(ctx context.Context, topic string, wait time.Duration) (id kadm.TopicID, err error) {
	if topic == "" {
		return id, errNoTopicName
	}
	deadline := time.Now().Add(wait)
	for {
		id, err = b.findTopic(ctx, topic)
		if errors.Is(err, ErrNoTopic) && b.config.Publish.CreateTopics {
			id, err = b.createTopic(ctx, topic)
		}
		if !errors.Is(err, ErrNoTopic) || !time.Now().Before(deadline) {
			return id, err
		}
		if !pause.Sleep(ctx, topicPoll) {
			return id, fmt.Errorf("%w, while waiting for it: %w", err, context.Cause(ctx))
		}
	}
}

func (b *Broker) findTopic(ctx context.Context, topic string) (id kadm.TopicID, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	topics, err := b.admin.ListTopicsWithInternal(ctx, topic)
	if err != nil {
		return id, b.config.unreachable(err)
	}
	err = topics[topic].Err
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return id, fmt.Errorf("%w: %q: create it, or let it be created with create_topics=true, or waited for with wait_for_topic", ErrNoTopic, topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return id, fmt.Errorf("kafka: topic %q: %w: allow the user to describe and read it, or check its name", topic, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return id, fmt.Errorf("kafka: topic %q: %w: use up to 249 letters, digits, dots, underscores and hyphens", topic, err)
	case err != nil && !kerr.IsRetriable(err): // a partition may have no leader at the moment
		return id, fmt.Errorf("kafka: topic %q: %w", topic, err)
	}
	return topics[topic].ID, nil
}

func (b *Broker) createTopic(ctx context.Context, topic string) (id kadm.TopicID, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	partitions, replication := int32(-1), int16(-1) // the broker's defaults
	if n := b.config.Publish.Partitions; n > 0 {
		partitions = int32(n) //nolint:gosec // checked by validate
	}
	if n := b.config.Publish.Replication; n > 0 {
		replication = int16(n) //nolint:gosec // checked by validate
	}
	err = untilThereAreBrokers(ctx, func() error {
		_, err := b.admin.CreateTopic(ctx, partitions, replication, nil, topic)
		return err
	})
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // another client has just created it
		return id, fmt.Errorf("kafka: creating topic %q: %w", topic, err)
	}
	// Brokers learn of a new topic one after another.
	for {
		id, err = b.findTopic(ctx, topic)
		if !errors.Is(err, ErrNoTopic) {
			return id, err
		}
		if !pause.Sleep(ctx, topicPoll) {
			return id, fmt.Errorf("%w, though it was just created", err)
		}
	}
}

// untilThereAreBrokers repeats create while the cluster has no controller, or fewer brokers than
// the topic needs replicas: after a start, or while the controller misses a broker. A cluster that
// is too small looks the same.
func untilThereAreBrokers(ctx context.Context, create func() error) error {
	var refused error
	for {
		err := create()
		if refused != nil && ctx.Err() != nil {
			return refused
		}
		if !errors.Is(err, kerr.InvalidReplicationFactor) && !kgo.IsRetryableBrokerErr(err) {
			return err
		}
		refused = err
		if !pause.Sleep(ctx, topicPoll) {
			return err
		}
	}
}

// topicLimit returns a topic's largest batch in bytes, or 0 if the broker does not report it. It
// reports false if the topic or the broker was not there.
func (b *Broker) topicLimit(ctx context.Context, topic string) (limit int, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	configs, err := b.admin.DescribeTopicConfigs(ctx, topic)
	var auth *kadm.AuthError
	switch {
	case errors.As(err, &auth):
		return 0, true
	case err != nil || len(configs) == 0:
		return 0, false
	case configs[0].Err != nil:
		return 0, errors.Is(configs[0].Err, kerr.TopicAuthorizationFailed)
	}
	for _, setting := range configs[0].Configs {
		if setting.Key == "max.message.bytes" && setting.Value != nil {
			limit, _ = strconv.Atoi(*setting.Value)
		}
	}
	return limit, true
}
