package brokertest

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

func checkGroupsGetTheirOwn(e *env) error {
	if e.OneGroup {
		e.notCheckedf("a copy for each group: the harness says that topics are shared by all groups")
		return nil
	}
	topic := e.topic()
	sent := newMessages(e.several())
	var groups []*subscription
	for range 2 {
		s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup(), InFlight: e.several()}, topic)
		if err != nil {
			return err
		}
		groups = append(groups, s)
	}
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	for i, s := range groups {
		got, err := s.all(sent)
		if err != nil {
			return fmt.Errorf("group %d: %w", i+1, err)
		}
		for _, msg := range got {
			msg.Ack()
		}
	}
	return nil
}

// checkGroupShares lets two subscribers of a group settle everything.
func checkGroupShares(e *env) error {
	const n = 20
	topic, group := e.topic(), newGroup()
	first, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	second, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	sent := newMessages(n)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	times := make(map[string]int)
	quiet := time.NewTimer(e.Within)
	defer quiet.Stop()
	for {
		var msg *message.Message
		select {
		case msg = <-first.messages:
		case msg = <-second.messages:
		case <-quiet.C:
			if len(times) < n {
				return fmt.Errorf("%d of %d messages came within %s", len(times), n, e.Within)
			}
			return nil
		}
		if msg == nil {
			return errChannelClosed
		}
		if times[msg.UUID]++; times[msg.UUID] > 1 {
			return fmt.Errorf("message %q came to two subscribers of one group", msg.UUID)
		}
		msg.Ack()
		if len(times) == n {
			quiet.Reset(e.Quiet) // look for one too many
		}
	}
}
