package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/stores"
)

// keyed gives a message the facts that its broker has of it. One in four has no key.
func (o order) keyed(m fleet.Message) fleet.Message {
	m.NativeID = "native id of " + o.Payload
	switch {
	case o.Key != "":
		m.Key = []byte(o.Key)
	case item(o.Payload)%4 > 0:
		m.Key = []byte("key of " + o.Payload)
	}
	return m
}

func factsOf(key []byte, nativeID string) string {
	return fmt.Sprintf("%t %q %q", key != nil, key, nativeID)
}

// sayFacts writes down what the handler can read of the delivery.
func (r *recorder) sayFacts(msg *message.Message) {
	d, _ := brokers.DeliveryOf(msg)
	r.say(msg.Context(), saidFacts, factsOf(d.Key, d.NativeID))
}

// facts is rule 14: each attempt has those of the first delivery. What a handler publishes
// with its context has none.
func (a *audit) facts(history []event) {
	want := make(map[subject]string)
	for _, e := range a.entries {
		m := e.keyed(fleet.Message{})
		want[subject{e.consumer, e.Payload}] = factsOf(m.Key, m.NativeID)
	}
	for _, e := range history {
		facts, known := want[subject{e.Consumer, e.Payload}]
		if e.What == saidFacts && known && facts != e.Detail && !slices.Contains([]conduct{echoes, echoed, spawns}, conductOf(e.ID)) {
			a.reportf("rule 14", key{e.Consumer, e.ID}, "an attempt had the facts %s, the delivery %s", e.Detail, facts)
		}
	}
}

// begunIn is how many attempts workers say they have begun. One that is counted before it
// begins, and its run, are one.
func begunIn(history []event) map[key]int {
	begun := make(map[key]int)
	type counting struct {
		key
		pid int
	}
	counted := make(map[counting]bool)
	for _, e := range inOrderOfTime(history) {
		k := key{e.Consumer, e.ID}
		c := counting{k, e.PID}
		switch e.What {
		case saidCounting:
			counted[c] = true
			begun[k]++
		case saidRun:
			if !counted[c] {
				begun[k]++
			}
			delete(counted, c)
		}
	}
	return begun
}

// notBegun is rule 6, too: what was only reserved when its worker was killed has lost no
// attempt. One that was released runs under another id.
func (a *audit) notBegun(begun map[key]int) {
	for k, f := range a.failures {
		if f.attempts > begun[k] && !strings.HasSuffix(k.id, longwinded) {
			a.reportf("rule 6", k, "%d attempts were begun, and the row has %d", begun[k], f.attempts)
		}
	}
}

// Variants of the rules about facts and reservations.

// keyForgotten loses what the broker said of a message.
type keyForgotten struct{ stores.Store }

func (s keyForgotten) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	due, err := s.Store.Due(ctx, q)
	for i := range due {
		due[i].Content.Facts.Key = nil
	}
	return due, err
}

// reservationCounted takes what is reserved for begun.
type reservationCounted struct{ stores.Store }

func (s reservationCounted) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	due, err := s.Store.Due(ctx, q)
	for i := range due {
		due[i].State.Attempts++
	}
	return due, err
}

// breaksUnwritten leaves no entry in the audit of what was reserved.
type breaksUnwritten struct {
	stores.Store
	b *backend
}

func (s breaksUnwritten) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	done, err := s.Store.Change(ctx, c)
	if err != nil || !c.Break {
		return done, err
	}
	if _, err := s.b.db.ExecContext(ctx, s.b.dialect.placeholder("DELETE FROM millpond_audit WHERE reason = $1"), breakReason); err != nil {
		return done, errors.Join(stores.ErrUnavailable, err) // SQLite's lock may be taken
	}
	return done, nil
}
