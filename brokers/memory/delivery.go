package memory

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// delivery is one hand-out of an item to a consumer.
type delivery struct {
	subscription *subscription
	item         *item
	msg          *message.Message
	ctx          context.Context // as handed out: a handler may have replaced the message's
	cancel       context.CancelFunc
	gone         chan struct{} // closed when the broker has taken the delivery back
}

// settlement is how a delivery ended.
type settlement int

const (
	acked settlement = iota
	nacked
	lost // not settled by its consumer
)

func (s *subscription) newDelivery(it *item) *delivery {
	d := &delivery{subscription: s, item: it, msg: it.entry.message(), gone: make(chan struct{})}
	ctx, cancel := context.WithCancel(s.ctx)
	d.ctx = brokers.WithDelivery(ctx, d.msg, s.topic.facts(it.entry, it.deliveries+1))
	d.cancel = cancel
	d.msg.SetContext(d.ctx)
	return d
}

func (t *topic) facts(e *entry, count int) brokers.Delivery {
	return brokers.Delivery{
		Topic:       t.name,
		NativeID:    e.id,
		Coordinates: t.coordinates(e),
		Key:         e.key,
		Time:        e.at,
		Count:       count,
		Suspect:     count > 1,
	}
}

// watch waits until the consumer settles the message.
func (d *delivery) watch() {
	defer d.cancel()
	var how settlement
	select {
	case <-d.msg.Acked():
		how = acked
	case <-d.msg.Nacked():
		how = nacked
	case <-d.gone:
		return
	}
	d.subscription.topic.mu.Lock()
	died := d.settle(how)
	d.subscription.topic.mu.Unlock()
	if died {
		d.logDeath()
	}
}

// settle ends the delivery, once; later calls do nothing. It reports whether the
// message thereby became a dead letter. The topic's mutex must be held.
func (d *delivery) settle(how settlement) (died bool) {
	s, g, it := d.subscription, d.subscription.group, d.item
	if it.current != d {
		return false
	}
	it.current = nil
	delete(s.unsettled, d)
	s.poke()
	if how == acked {
		g.topic.settle(it.entry)
		return false
	}
	var giveBack brokers.GiveBack
	if how == nacked {
		giveBack = brokers.GiveBackFrom(d.ctx)
		if giveBack.After <= 0 {
			giveBack.After = g.topic.config.RedeliveryDelay
		}
	}
	if (giveBack.Failed || how == lost) && g.spend(it) {
		return true
	}
	g.putBackAfter(it, giveBack.After)
	return false
}

func (d *delivery) logDeath() {
	d.subscription.logger.Info("Message became a dead letter", watermill.LogFields{
		"message_uuid": d.item.entry.uuid, "deliveries": d.item.deliveries,
	})
}
