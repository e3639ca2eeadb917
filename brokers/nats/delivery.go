package nats

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/handout"
)

// handOut hands a message out and settles it. Until then it sends signs of life to the server.
func (s *subscription) handOut(from jetstream.Msg) {
	msg, facts := s.read(from)
	h := s.Handout(msg, facts)
	h.Keep, h.KeepEvery = func() { _ = from.InProgress() }, s.source.ackWait()/3 // errors are ignored: the next call follows soon
	fate, giveBack := h.Deliver()
	var err error
	switch fate {
	case handout.Acked:
		err = from.Ack()
	case handout.Nacked:
		first := s.subscriber.broker.config.Consume.RedeliveryDelay
		err = from.NakWithDelay(handout.Delay(giveBack, facts.Count, first, min(redeliveryGrowth*first, longestRedeliveryDelay)))
	case handout.Unbegun:
		err = from.Nak()
	case handout.Abandoned:
	}
	if err != nil {
		s.Logger().Debug("A message could not be settled and is redelivered", watermill.LogFields{"error": err.Error()})
	}
}

// read returns a fresh copy of a message, and the facts of its delivery.
func (s *subscription) read(from jetstream.Msg) (*message.Message, brokers.Delivery) {
	facts := brokers.Delivery{Topic: s.source.topic, NativeID: from.Headers().Get(jetstream.MsgIDHeader)}
	meta, err := from.Metadata()
	if err != nil {
		facts.Suspect = true // without metadata nothing is known
	} else {
		facts.Coordinates = meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10)
		facts.Time = meta.Timestamp
		facts.Count = int(min(meta.NumDelivered, 1<<30))
		doubtful := s.doubtful(meta.Sequence.Stream)
		facts.Suspect = facts.Count != 1 || doubtful
	}
	var msg *message.Message
	msg, facts.Undecodable = callback.Read("nats: Consume.Unmarshal", s.subscriber.broker.config.Consume.Unmarshal, from, decode)
	return msg, facts
}
