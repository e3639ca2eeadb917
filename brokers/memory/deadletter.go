package memory

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// DeadLetter is a message that a group was not able to settle within
// Config.DeliveryLimit deliveries.
type DeadLetter struct {
	Message  *message.Message // a copy, without a context; settling it has no effect
	Delivery brokers.Delivery // of the last delivery
	At       time.Time        // when it became a dead letter
}

// DeadLetters returns the dead letters of one group of a topic, the first to die
// first. They stay, and keep their places in the topic's capacity, until
// [Broker.DropDeadLetters]. It returns nil if there are none, also for topics and
// groups that do not exist.
func (b *Broker) DeadLetters(topic, group string) []DeadLetter {
	b.mu.Lock()
	t := b.topics[topic]
	b.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[group]
	if g == nil {
		return nil
	}
	var letters []DeadLetter
	for _, dead := range g.dead {
		letters = append(letters, DeadLetter{
			Message:  dead.entry.message(),
			Delivery: t.facts(dead.entry, dead.deliveries),
			At:       dead.at,
		})
	}
	return letters
}

// DropDeadLetters settles all dead letters of one group of a topic, which frees
// their places, and returns how many there were.
func (b *Broker) DropDeadLetters(topic, group string) int {
	b.mu.Lock()
	t := b.topics[topic]
	b.mu.Unlock()
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[group]
	if g == nil {
		return 0
	}
	for _, dead := range g.dead {
		t.settle(dead.entry)
	}
	dropped := len(g.dead)
	g.dead = nil
	return dropped
}
