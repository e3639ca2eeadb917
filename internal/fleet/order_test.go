package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
)

// Messages of one key come one at a time, in the order of publishing, whoever dies.
func TestOrdered(t *testing.T) {
	const keys = 7
	messages := numbers(300)
	for i := range messages {
		if i%10 != 0 { // some have no key, and no order
			messages[i].Key = fmt.Append(nil, i%keys)
		}
	}
	r := newRig(t, "slow", messages...)
	r.Ordered, r.Duplicates = true, 0.2
	r.Kills = RandomKills(3, 5, 250, 4)
	open := make(map[string]string) // the message of a key that is delivered and not acked
	order := make(map[string][]string)
	r.Observe = func(e Event) {
		key := string(e.Message.Key)
		if key == "" {
			return
		}
		switch e.Kind {
		case EventDelivered:
			if open[key] != "" && open[key] != e.Message.UUID {
				t.Errorf("%s came while %s of the same key was not acked", e.Message.UUID, open[key])
			}
			open[key] = e.Message.UUID
		case EventAcked:
			delete(open, key)
			if !slices.Contains(order[key], e.Message.UUID) {
				order[key] = append(order[key], e.Message.UUID)
			}
		}
	}
	report := r.mustRun(t)
	if report.Redeliveries == 0 {
		t.Error("nothing came again: the kills have not hit")
	}
	for key, got := range order {
		var want []string
		for _, m := range messages {
			if string(m.Key) == key {
				want = append(want, m.UUID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("key %s: acked in the order %v, want %v", key, got, want)
		}
	}
}

func TestOrderedNeedsTheOrderOfPublishing(t *testing.T) {
	r := newRig(t, "ack", numbers(1)...)
	r.Ordered, r.Reorder = true, 2
	if _, err := r.run(t); err == nil {
		t.Error("Ordered with Reorder was accepted")
	}
}

func TestDeliveryLimit(t *testing.T) {
	r := newRig(t, "nack", numbers(20)...)
	r.DeliveryLimit = 3
	dropped := 0
	r.Observe = func(e Event) {
		if e.Kind == EventDropped {
			dropped++
			if e.Count != 3 {
				t.Errorf("%s was dropped after %d deliveries", e.Message.UUID, e.Count)
			}
		}
	}
	report := r.mustRun(t)
	if report.Dropped != 20 || dropped != 20 || report.Deliveries != 60 {
		t.Errorf("%d dropped, %d seen to be, %d deliveries; want 20, 20 and 60", report.Dropped, dropped, report.Deliveries)
	}
}

// The workers stay until what they do besides has come to rest, and are replaced when
// they die meanwhile.
func TestWorkersStayUntilAtRest(t *testing.T) {
	r := newRig(t, "ack", numbers(50)...)
	r.Kills = []Kill{{Kind: SIGKILL, After: 50}}
	r.await()
	var asked, restarted atomic.Int32
	observe := r.Observe
	r.Observe = func(e Event) {
		observe(e)
		if e.Kind == EventReady && asked.Load() > 0 {
			restarted.Add(1)
		}
	}
	r.AtRest = func(context.Context) bool {
		asked.Add(1)
		return restarted.Load() > 0
	}
	r.mustRun(t)
	if asked.Load() < 2 {
		t.Errorf("AtRest was asked %d times", asked.Load())
	}
}
