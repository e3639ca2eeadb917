package memory

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// DeadLetter is a message that a group did not settle within Config.DeliveryLimit deliveries.
type DeadLetter struct {
	Message  *message.Message // a copy, without a context; settling it has no effect
	Delivery brokers.Delivery // of the last delivery
	At       time.Time        // when it became a dead letter
}

// DeadLetters returns the dead letters of one group of a topic, oldest first. They stay, and keep
// their places in the topic's capacity, until [Broker.DropDeadLetters]. It returns nil if there are
// none, or if the topic or group is unknown.
func (b *Broker) DeadLetters(topic, ofGroup string) (letters []DeadLetter) {
	b.visit(topic, ofGroup, func(g *group) {
		for _, dead := range g.dead {
			letters = append(letters, DeadLetter{
				Message:  dead.entry.message(),
				Delivery: g.topic.facts(dead.entry, dead.deliveries),
				At:       dead.at,
			})
		}
	})
	return letters
}

// DropDeadLetters settles all dead letters of one group of a topic, which frees their places, and
// returns how many there were.
func (b *Broker) DropDeadLetters(topic, ofGroup string) (dropped int) {
	b.visit(topic, ofGroup, func(g *group) {
		for _, dead := range g.dead {
			g.topic.settle(dead.entry)
		}
		dropped = len(g.dead)
		g.dead = nil
	})
	return dropped
}

// visit calls f with a group, if it exists, while holding the topic's mutex.
func (b *Broker) visit(topicName, groupName string, f func(*group)) {
	b.mu.Lock()
	t := b.topics[topicName]
	b.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[groupName]; g != nil {
		f(g)
	}
}
