package kafka

import (
	"bytes"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/handout"
)

// longestRedeliveryDelay is the longest pause between redeliveries.
const longestRedeliveryDelay = time.Second

// work delivers messages, one at a time, until the partition is stopped.
func (p *partition) work() {
	for it := p.take(); it != nil; it = p.take() {
		p.deliver(it)
	}
}

// deliver hands a message out and settles it. If the partition stops before anybody has received
// the message, it is dropped and not marked.
func (p *partition) deliver(it *item) {
	s := p.session
	if !s.Take(p.open.Done()) {
		p.unbegun(it)
		return
	}
	defer s.Put()
	h := s.Handout(p.message(it))
	h.Withdrawn, h.Lost = p.open.Done(), p.kept.Done()
	it.count++
	fate, giveBack := h.Deliver()
	if it.suspect && h.Unfinished() {
		p.unfinished(it)
	}
	switch fate {
	case handout.Acked:
		p.settled(it)
	case handout.Nacked:
		p.again(it, handout.Delay(giveBack, it.count, s.config().RedeliveryDelay, longestRedeliveryDelay))
	case handout.Unbegun:
		it.count--
		p.unbegun(it)
	case handout.Abandoned:
	}
}

// unbegun notes that no consumer received a message.
func (p *partition) unbegun(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it.unbegun = it.count == 0
}

// message returns a fresh copy of a record, and the facts of its delivery.
func (p *partition) message(it *item) (*message.Message, brokers.Delivery) {
	r, config := it.record, p.session.config()
	facts := brokers.Delivery{
		Topic:       r.Topic,
		Coordinates: r.Topic + "/" + strconv.FormatInt(int64(r.Partition), 10) + "/" + strconv.FormatInt(r.Offset, 10),
		Key:         r.Key,
		Suspect:     it.count > 0 || it.suspect,
	}
	if config.ProducerTime || r.Attrs.TimestampType() == logAppendTime {
		facts.Time = r.Timestamp
	}
	var msg *message.Message
	msg, facts.Undecodable = callback.Read("kafka: Consume.Unmarshal", config.Unmarshal, r, func(r *kgo.Record) (*message.Message, error) {
		return readRecord(r, bytes.Clone(r.Value)), nil
	})
	return msg, facts
}

// logAppendTime is the type of timestamps that the broker sets.
const logAppendTime = 1
