package main

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestEachMessageIsDeliveredOnceAndNotMoreAtATimeThanThereAreWorkers(t *testing.T) {
	for _, routed := range []bool{false, true} {
		const workers, messages = 4, 300
		var (
			seen         sync.Map
			inFlight     atomic.Int64
			mostInFlight atomic.Int64
		)
		h := &handling{handler: func(msg *message.Message) error {
			now := inFlight.Add(1)
			defer inFlight.Add(-1)
			for most := mostInFlight.Load(); now > most && !mostInFlight.CompareAndSwap(most, now); most = mostInFlight.Load() {
			}
			if _, again := seen.LoadOrStore(msg.UUID, true); again {
				t.Errorf("%s came twice", msg.UUID)
			}
			return nil
		}}
		d, err := newDriver(t.Context(), h, routed, workers)
		if err != nil {
			t.Fatal(err)
		}
		l := newMessages(&recipe{}, messages)
		took, latencies, err := d.run(l, messages)
		if err != nil || took <= 0 || len(latencies) != messages {
			t.Errorf("routed %v: took %v, %d latencies, %v", routed, took, len(latencies), err)
		}
		if n := mostInFlight.Load(); n > workers {
			t.Errorf("routed %v: %d messages were in flight, there are %d workers", routed, n, workers)
		}
		for _, delivery := range l.deliveries {
			if delivery.msg.Context().Err() == nil {
				t.Errorf("routed %v: the context of a message outlives its delivery", routed)
				break
			}
		}
		for _, latency := range latencies {
			if latency <= 0 || latency > took {
				t.Errorf("routed %v: a latency is %v of %v", routed, latency, took)
			}
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailedHandlerEndsTheRunWithItsReason(t *testing.T) {
	for _, routed := range []bool{false, true} {
		h := &handling{handler: func(*message.Message) error { return errors.New("the disk is full") }}
		d, err := newDriver(t.Context(), h, routed, 2)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = d.run(newMessages(&recipe{}, 10), 10)
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("routed %v: %v", routed, err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWorkersShareNoRepeatedMessage(t *testing.T) {
	l := repeated(&recipe{}, []string{"a", "b", "c", "d", "e"})
	owner := make(map[string]int)
	for worker := range 3 {
		pick := l.picker(worker, 3)
		for i := range 20 {
			id := pick(i).msg.UUID
			if other, taken := owner[id]; taken && other != worker {
				t.Errorf("%q belongs to workers %d and %d", id, other, worker)
			}
			owner[id] = worker
		}
	}
	if len(owner) != 5 {
		t.Errorf("%d messages were delivered, there are 5", len(owner))
	}
}
