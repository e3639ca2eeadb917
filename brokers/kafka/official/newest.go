package official

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

var errNotPinned = errors.New("kafka/official: the offsets to begin at could not be committed")

// Setup is called when the group has shared its partitions, before anything is fetched.
func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	b := h.subscription.subscriber.broker
	if b.config.Consume.StartAtNewest {
		if err := b.pinNewest(session, h.subscription.subscriber.config.Group); err != nil {
			return err
		}
	}
	return h.ConsumerGroupHandler.Setup(session)
}

// pinNewest commits where the partitions end that nobody has committed anything of, so
// that a group which begins once more does not begin at a later end.
func (b *Broker) pinNewest(session sarama.ConsumerGroupSession, group string) error {
	unknown, err := b.uncommitted(group, session.Claims())
	if err != nil || len(unknown) == 0 {
		return err
	}
	for topic, partitions := range unknown {
		for _, partition := range partitions {
			end, err := b.client.GetOffset(topic, partition, sarama.OffsetNewest)
			if err != nil {
				return fmt.Errorf("kafka/official: where partition %d ends: %w", partition, err)
			}
			session.MarkOffset(topic, partition, end, "")
		}
	}
	session.Commit() // which returns no error
	unknown, err = b.uncommitted(group, unknown)
	if err == nil && len(unknown) > 0 {
		err = errNotPinned
	}
	return err
}

// uncommitted returns the partitions that the group has committed no offset of.
func (b *Broker) uncommitted(group string, of map[string][]int32) (map[string][]int32, error) {
	admin, err := sarama.NewClusterAdminFromClient(b.client) // closing it would close the client
	if err != nil {
		return nil, b.config.unreachable(err)
	}
	committed, err := admin.ListConsumerGroupOffsets(group, of)
	if err != nil {
		return nil, fmt.Errorf("kafka/official: the committed offsets of group %q: %w", group, err)
	}
	unknown := make(map[string][]int32)
	for topic, partitions := range of {
		for _, partition := range partitions {
			if block := committed.GetBlock(topic, partition); block == nil || block.Offset < 0 {
				unknown[topic] = append(unknown[topic], partition)
			}
		}
	}
	return unknown, nil
}
