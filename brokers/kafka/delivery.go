package kafka

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
)

// longestRedeliveryDelay is where the pauses between redeliveries stop growing.
const longestRedeliveryDelay = time.Second

// work delivers messages, one at a time, until the partition is stopped.
func (p *partition) work() {
	for it := p.take(); it != nil; it = p.take() {
		p.deliver(it)
	}
}

// deliver hands a message out and waits until it is settled. What nobody has received
// when the partition stops was not begun: it is dropped, and not marked.
func (p *partition) deliver(it *item) {
	select {
	case p.session.slots <- struct{}{}:
	case <-p.stopping:
		return
	}
	defer func() { <-p.session.slots }()
	ctx, cancel := context.WithCancel(p.session.subscription.ctx)
	defer cancel()
	msg, facts := p.message(it)
	ctx = brokers.WithDelivery(ctx, msg, facts)
	msg.SetContext(ctx)
	select {
	case <-p.stopping: // it may have been before
		return
	default:
	}
	select {
	case p.session.out <- msg:
	case <-p.stopping:
		return
	}
	it.count++
	p.count(1)
	defer p.count(-1)
	select {
	case <-msg.Acked():
		p.settled(it)
	case <-msg.Nacked():
		p.again(it, p.delay(it, brokers.GiveBackFrom(ctx)))
	case <-p.gone:
		select {
		case <-msg.Acked(): // a moment ago
			p.settled(it)
		default:
		}
	}
}

func (p *partition) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running += n
}

// delay is the pause before the next delivery. A handler may have replaced the
// message's context, so the give-back is read from the one that was handed out.
func (p *partition) delay(it *item, g brokers.GiveBack) time.Duration {
	if g.After > 0 {
		return g.After
	}
	first := p.session.subscriber.broker.config.Consume.RedeliveryDelay
	return min(first<<min(it.count-1, 10), max(first, longestRedeliveryDelay))
}

// message makes a fresh copy of a record, and says what is known about its delivery.
func (p *partition) message(it *item) (*message.Message, brokers.Delivery) {
	r, config := it.record, &p.session.subscriber.broker.config.Consume
	facts := brokers.Delivery{
		Topic:       r.Topic,
		Coordinates: r.Topic + "/" + strconv.FormatInt(int64(r.Partition), 10) + "/" + strconv.FormatInt(r.Offset, 10),
		Key:         r.Key,
		Suspect:     it.count > 0 || r.Offset < p.suspects,
	}
	if config.ProducerTime || r.Attrs.TimestampType() == logAppendTime {
		facts.Time = r.Timestamp
	}
	if config.Unmarshal != nil {
		msg, err := callback.Read("kafka: Consume.Unmarshal", config.Unmarshal, r)
		if err == nil {
			return msg, facts
		}
		facts.Undecodable = err
	}
	return readRecord(r, bytes.Clone(r.Value)), facts
}

// logAppendTime is the type of a timestamp that the broker has set.
const logAppendTime = 1
