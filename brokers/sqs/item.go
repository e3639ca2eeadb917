package sqs

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
)

// item is a message from its receive to its settlement.
type item struct {
	queue    *queue
	message  types.Message
	received time.Time // 12 hours count from here
	count    int       // deliveries, including this one
	group    string    // the group in a FIFO queue
	from     time.Time // when it is visible again after a give-back; zero: at once

	// Guarded by keeper.mu.
	hidden time.Time // until when it is hidden, as far as known
	due    time.Time // when to extend that
	begun  bool      // a handler has it

	lost   chan struct{}           // closed by lose
	cancel context.CancelCauseFunc // of the delivery's context, nil before the delivery; guarded by keeper.mu
}

func newItem(q *queue, m types.Message, received time.Time, visibility time.Duration) *item {
	it := &item{queue: q, message: m, received: received, lost: make(chan struct{})}
	it.hideFrom(received, visibility)
	it.count, _ = strconv.Atoi(it.system(types.MessageSystemAttributeNameApproximateReceiveCount))
	if q.fifo {
		it.group = it.system(types.MessageSystemAttributeNameMessageGroupId)
	}
	return it
}

// hideFrom notes that the message is hidden from t on for visibility. It is extended after three
// eighths of that. keeper.mu must be held once the keeper has the item.
func (it *item) hideFrom(t time.Time, visibility time.Duration) {
	it.hidden, it.due = t.Add(visibility), t.Add(visibility*3/8)
}

func (it *item) system(name types.MessageSystemAttributeName) string {
	return it.message.Attributes[string(name)]
}

func (it *item) handle() string { return aws.ToString(it.message.ReceiptHandle) }

// isLost reports whether lose was called.
func (it *item) isLost() bool {
	select {
	case <-it.lost:
		return true
	default:
		return false
	}
}

// left returns how long the message can still be hidden, of the 12 hours.
func (it *item) left() time.Duration {
	const margin = 10 * time.Second // the service's clock began earlier
	return max(0, longestVisibility-margin-time.Since(it.received))
}

// read returns a fresh copy of the message, and the facts of its delivery.
func (it *item) read(topic string, unmarshal func(*types.Message) (*message.Message, error)) (*message.Message, brokers.Delivery) {
	facts := brokers.Delivery{
		Topic:       topic,
		Coordinates: it.queue.place() + "/" + aws.ToString(it.message.MessageId),
		Count:       it.count,
		Suspect:     it.count != 1,
	}
	if it.queue.fifo {
		facts.NativeID = it.system(types.MessageSystemAttributeNameMessageDeduplicationId)
	}
	if group := it.system(types.MessageSystemAttributeNameMessageGroupId); group != "" {
		facts.Key = []byte(group)
	}
	if ms, err := strconv.ParseInt(it.system(types.MessageSystemAttributeNameSentTimestamp), 10, 64); err == nil {
		facts.Time = time.UnixMilli(ms)
	}
	var msg *message.Message
	msg, facts.Undecodable = callback.Read("sqs: Consume.Unmarshal", unmarshal, &it.message, wire.FromSQS)
	return msg, facts
}
