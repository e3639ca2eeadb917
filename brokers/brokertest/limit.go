package brokertest

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// manyDeliveries is more than the default delivery limit of any broker we know.
const manyDeliveries = 30

// limited makes a broker with a known delivery limit the check's broker, if there is one.
func (e *env) limited() (limit int, ok bool) {
	if e.OpenLimited != nil {
		const chosen = 3
		e.use(e.OpenLimited(e.t, chosen))
		return chosen, true
	}
	limit = e.caps.DeliveryLimit.Max
	return limit, e.caps.DeliveryLimit.Known && limit > 0
}

// first subscribes, publishes one message and receives it.
func (e *env) first() (*subscription, *message.Message, error) {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return nil, nil, err
	}
	sent := newMessages(1)[0]
	if err := e.publish(topic, sent); err != nil {
		return nil, nil, err
	}
	msg, err := s.nextOf(sent)
	return s, msg, err
}

func checkDeliveryLimit(e *env) error {
	limit, ok := e.limited()
	if !ok {
		e.notCheckedf("the delivery limit: none is known, and the harness has no OpenLimited")
		return nil
	}
	if got := e.caps.DeliveryLimit; got != (brokers.DeliveryLimit{Known: true, Max: limit}) {
		return fmt.Errorf("Capabilities.DeliveryLimit is %+v with a limit of %d", got, limit)
	}
	s, msg, err := e.first()
	if err != nil {
		return err
	}
	for delivery := 1; delivery < limit; delivery++ {
		if err := giveBack(msg, brokers.GiveBack{Failed: true}); err != nil {
			return err
		}
		if msg, err = s.nextOf(msg); err != nil {
			return fmt.Errorf("after %d failed deliveries of %d: %w", delivery, limit, err)
		}
	}
	if err := giveBack(msg, brokers.GiveBack{Failed: true}); err != nil {
		return err
	}
	if err := s.nothing(); err != nil {
		return fmt.Errorf("after all %d deliveries have failed: %w", limit, err)
	}
	return nil
}

func checkNoDeliveryLimit(e *env) error {
	if limit := e.caps.DeliveryLimit; !limit.Known || limit.Max > 0 {
		e.notCheckedf("deliveries without limit: the broker does not promise them")
		return nil
	}
	s, msg, err := e.first()
	if err != nil {
		return err
	}
	for delivery := range manyDeliveries {
		if err := giveBack(msg, brokers.GiveBack{Failed: true}); err != nil {
			return err
		}
		if msg, err = s.nextOf(msg); err != nil {
			return fmt.Errorf("after %d failed deliveries, without a limit: %w", delivery+1, err)
		}
	}
	msg.Ack()
	return nil
}

func checkNotNowIsFree(e *env) error {
	if !e.caps.FreeGiveBack {
		e.notCheckedf("that \"not now\" is free: the broker counts it")
		return nil
	}
	limit, ok := e.limited()
	if !ok {
		e.notCheckedf("that \"not now\" is free: no delivery limit is known, and the harness has no OpenLimited")
		return nil
	}
	s, msg, err := e.first()
	if err != nil {
		return err
	}
	for delivery := range limit + 3 {
		if err := giveBack(msg, brokers.GiveBack{}); err != nil {
			return err
		}
		if msg, err = s.nextOf(msg); err != nil {
			return fmt.Errorf("given back %d times as \"not now\", limit %d: %w", delivery+1, limit, err)
		}
	}
	for failed := 1; failed < limit; failed++ {
		if err := giveBack(msg, brokers.GiveBack{Failed: true}); err != nil {
			return err
		}
		if msg, err = s.nextOf(msg); err != nil {
			return fmt.Errorf("after %d failures of %d, and earlier \"not now\": %w", failed, limit, err)
		}
	}
	msg.Ack()
	return nil
}
