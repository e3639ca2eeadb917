package sqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
)

// outgoing is a message in its form for a queue or topic.
type outgoing struct {
	body       string
	attributes map[string]wire.Attribute
	size       int

	group, deduplication string // for FIFO queues and topics

	err error // why it was not accepted; errNotSent until it is sent
}

var (
	errNotSent  = errors.New("it was not sent, because an earlier one failed")
	errNotTaken = errors.New("the service has not reported its result")
)

// oneGroup is the group of messages without one, whose order is then kept.
const oneGroup = "millpond"

// outgoing encodes a message, and checks its size.
func (p *publisher) outgoing(t target, msg *message.Message) (*outgoing, error) {
	config := &p.broker.config.Publish
	o := &outgoing{err: errNotSent}
	var except []string
	if t.ordered() {
		except = []string{config.GroupMetadata, config.DeduplicationMetadata}
		o.group = orderID(msg.Metadata[config.GroupMetadata], oneGroup)
		o.deduplication = orderID(msg.Metadata[config.DeduplicationMetadata], msg.UUID)
		if o.deduplication == "" {
			o.deduplication = watermill.NewUUID()
		}
	}
	var err error
	if o.body, o.attributes, err = wire.Encode(msg, except...); err != nil {
		return nil, err
	}
	o.size = len(o.body)
	for name, a := range o.attributes {
		o.size += a.Size(name)
	}
	if most, _ := t.limits(); o.size > most {
		return nil, fmt.Errorf("%w: it has %d bytes with its attributes, and the limit is %d: make it smaller, store the payload elsewhere, or raise the queue's MaximumMessageSize",
			ErrTooLarge, o.size, most)
	}
	return o, nil
}

// longestOrderID is how long a group or deduplication id may be.
const longestOrderID = 128

const orderIDCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// orderID returns value, or other if value is empty, in a valid form for a group or deduplication
// id: an invalid id is replaced by its hash.
func orderID(value, other string) string {
	if value == "" {
		value = other
	}
	if len(value) > longestOrderID || strings.Trim(value, orderIDCharacters) != "" {
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:])
	}
	return value
}

// batchesOf splits messages into batches for requests.
func batchesOf(all []*outgoing, largest int) (batches [][]*outgoing) {
	for len(all) > 0 {
		n, size := 1, all[0].size
		for n < min(batchSize, len(all)) && size+all[n].size <= largest {
			size += all[n].size
			n++
		}
		batches = append(batches, all[:n])
		all = all[n:]
	}
	return batches
}

// target finds the queue or SNS topic of a topic.
func (p *publisher) target(ctx context.Context, topic string) (target, error) {
	if topic == "" {
		return nil, errNoTopicName
	}
	b := p.broker
	if arn := b.config.topicARN(topic); arn != "" {
		if b.config.CreateQueues {
			if err := b.ensureTopic(ctx, arn); err != nil {
				return nil, err
			}
		}
		return &topicTarget{b, arn}, nil
	}
	q, err := b.queueOf(ctx, b.sqs, b.config.publishTo(topic))
	if err != nil {
		return nil, err
	}
	return &queueTarget{b, q}, nil
}
