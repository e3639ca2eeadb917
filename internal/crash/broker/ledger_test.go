package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pause"
)

// ledger is what was published, kept outside of the system.
type ledger struct {
	rng *rand.Rand

	mu        sync.Mutex
	published map[string]int // how often, by id
	recent    []string
	events    []event
}

func newLedger(seed uint64) *ledger {
	return &ledger{rng: rand.New(rand.NewPCG(seed, 1)), published: make(map[string]int)}
}

// happened writes down what was done to somebody.
func (l *ledger) happened(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{At: time.Now(), What: "parent: " + what})
}

// next returns an order, or one of the last ones once more.
func (l *ledger) next() *message.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	var id string
	if len(l.recent) > 0 && l.rng.IntN(4) == 0 {
		id = l.recent[l.rng.IntN(len(l.recent))]
	} else {
		id = fmt.Sprintf("%05d-%s", len(l.published), l.draw())
		if l.recent = append(l.recent, id); len(l.recent) > 100 {
			l.recent = l.recent[1:]
		}
	}
	l.published[id]++
	msg := message.NewMessage(id, []byte("order "+id))
	if l.rng.IntN(2) == 0 { // else its duplicate may come by another partition
		msg.Metadata.Set("item", fmt.Sprint(item(id)))
	}
	return msg
}

func (l *ledger) draw() conduct {
	p := l.rng.IntN(100)
	for c, share := range shares {
		if p -= share.percent; p < 0 {
			return shares[c].conduct
		}
	}
	return honest
}

// shares says how many orders in a hundred have which conduct; the rest is honest.
var shares = []struct {
	conduct conduct
	percent int
}{{slow, 25}, {flaky, 6}, {panics, 3}, {stalls, 3}, {hopeless, 2}, {misread, 2}}

func (l *ledger) count() (ids, messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.published {
		messages += n
	}
	return len(l.published), messages
}

// publish publishes at least n messages and goes on until enough says so or ctx ends.
// Whatever fails is published again.
func (l *ledger) publish(ctx context.Context, to brokers.Broker, n int, enough func() bool) error {
	publisher, err := to.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	for published := 0; published < n || !enough(); {
		var batch []*message.Message
		for range 1 + l.rng.IntN(4) {
			batch = append(batch, l.next())
		}
		published += len(batch)
		for err = publisher.Publish(topic, batch...); err != nil; err = publisher.Publish(topic, batch...) {
			l.happened("publishing has failed: " + err.Error())
			if !pause.Sleep(ctx, 50*time.Millisecond) {
				return err
			}
		}
		if !pause.Sleep(ctx, 40*time.Millisecond) {
			return nil
		}
	}
	return nil
}
