package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
)

// load is what a driver delivers. It is made before the clock runs.
type load struct {
	deliveries []delivery

	// again lets every worker go round and round in a part of its own; else each
	// delivery is made once.
	again bool

	pace int // messages a second that begin; 0: as many as the workers can deliver
}

// delivery is a message as a subscriber would hand it out: with the facts of its
// arrival in a context of its own, which ends when it is settled.
type delivery struct {
	msg     *message.Message
	settled context.CancelFunc
}

func newDelivery(id string, suspect bool) delivery {
	ctx, cancel := context.WithCancel(context.Background())
	msg := message.NewMessage(id, payload(id))
	msg.Metadata = message.Metadata{"content_type": "application/json", "correlation_id": id}
	msg.SetContext(brokers.WithDelivery(ctx, msg, brokers.Delivery{Topic: topicName, Count: 1, Suspect: suspect}))
	return delivery{msg, cancel}
}

// after returns the load without its first n deliveries.
func (l load) after(n int) load {
	if !l.again {
		l.deliveries = l.deliveries[n:]
	}
	return l
}

// due is when delivery i of a load that began at start shall begin.
func (l load) due(start time.Time, i int) time.Time {
	return start.Add(time.Duration(i) * time.Second / time.Duration(l.pace))
}

// picker returns what a worker delivers, given how many were delivered before by all.
func (l load) picker(worker, workers int) func(before int) delivery {
	if !l.again {
		return func(before int) delivery { return l.deliveries[before] }
	}
	own := l.deliveries[worker*len(l.deliveries)/workers : (worker+1)*len(l.deliveries)/workers]
	i := -1
	return func(int) delivery {
		if i++; i == len(own) {
			i = 0
		}
		return own[i]
	}
}

// newMessages returns a load of n messages with new ids.
func newMessages(r *recipe, n int) load {
	l := load{deliveries: make([]delivery, n)}
	for i := range l.deliveries {
		l.deliveries[i] = newDelivery(uuid.NewString(), r.suspect)
	}
	return l
}

// repeated is a load of messages that come again and again.
func repeated(r *recipe, ids []string) load {
	l := load{again: true}
	for _, id := range ids {
		l.deliveries = append(l.deliveries, newDelivery(id, r.suspect))
	}
	return l
}

// known is a load of messages that the recipe has seen; see recipe.mixed.
func known(r *recipe, ids []string, n int) load {
	if !r.mixed {
		return repeated(r, ids)
	}
	const newEach = 8
	l := newMessages(r, n)
	for i := range l.deliveries {
		if i%newEach != 0 {
			l.deliveries[i] = newDelivery(ids[i%len(ids)], r.suspect)
		}
	}
	return l
}

// payload is an order event of about 490 bytes.
func payload(id string) []byte {
	const event = `{"event_id":%q,"type":"order.paid","version":3,"occurred_at":"2025-03-14T09:26:53.589793Z",` +
		`"tenant":"acme-industrial","order":{"number":"A-2025-0031415","currency":"EUR","total":"148.20","lines":[` +
		`{"sku":"PIPE-22-CU","name":"Copper pipe 22 mm","quantity":12,"unit_price":"8.95"},` +
		`{"sku":"ELBOW-22","name":"Elbow 22 mm","quantity":18,"unit_price":"2.10"},` +
		`{"sku":"FLUX-100","name":"Soldering flux 100 g","quantity":1,"unit_price":"3.00"}]}}`
	return fmt.Appendf(nil, event, id)
}
