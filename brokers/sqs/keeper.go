package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/internal/outage"
)

// keeper keeps received items hidden from others. Each item has its own clock from its receive on,
// even while it waits to be delivered.
type keeper struct {
	s *subscription

	mu       sync.Mutex
	items    map[*item]struct{}
	stopping chan struct{}
	busy     sync.WaitGroup
	trouble  *outage.Outage
}

func (k *keeper) init(s *subscription) {
	k.s = s
	k.items = make(map[*item]struct{})
	k.stopping = make(chan struct{})
	k.trouble = outage.New(s.Logger(), "Extending the visibility of messages")
}

func (k *keeper) keep(items []*item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range items {
		k.items[it] = struct{}{}
	}
}

// drop removes an item, and returns how many are left.
func (k *keeper) drop(it *item) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.items, it)
	return len(k.items)
}

// offer notes that the item is about to be handed out, and how to end its context. It reports false
// if another consumer may have it by now.
func (k *keeper) offer(it *item, cancel context.CancelCauseFunc) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	it.cancel = cancel
	return !it.isLost() && time.Now().Before(it.hidden)
}

// begin notes that a handler has the item. From now on it is given up only if SQS says that it was
// taken back, or after the 12 hours.
func (k *keeper) begin(it *item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it.begun = true
}

// run checks eight times per visibility timeout, and extends items after three of these checks. So
// items that are extended together stay together, and half of the timeout is left for retries.
func (k *keeper) run() {
	defer k.busy.Wait()
	tick := time.NewTicker(k.s.visibility / 8)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.stopping:
			return
		}
		due := k.due()
		for len(due) > 0 {
			batch := due[:min(batchSize, len(due))]
			due = due[len(batch):]
			k.busy.Go(func() { k.extend(batch) })
		}
	}
}

// due returns the items to extend, and gives up those that cannot be extended.
func (k *keeper) due() (due []*item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for it := range k.items {
		switch {
		case it.isLost():
		case it.left() < time.Second:
			k.s.Logger().Error("A message is taken back: it has been unsettled for 12 hours", ErrTakenBack, it.fields())
			k.lose(it)
		case !it.begun && now.After(it.hidden):
			k.lose(it) // other consumers may have it: it must not begin
		case !now.Before(it.due):
			it.due = now.Add(k.s.visibility) // not again during this attempt
			due = append(due, it)
		}
	}
	return due
}

// extend hides a batch for another visibility timeout.
func (k *keeper) extend(batch []*item) {
	sent := time.Now()
	changes := make([]change, len(batch))
	for i, it := range batch {
		changes[i] = change{it, min(k.s.visibility, it.left()).Truncate(time.Second)}
	}
	ctx, cancel := context.WithTimeout(k.s.settling.leave, max(min(requestTimeout, k.s.visibility/4), time.Second))
	defer cancel()
	errs := k.s.changeVisibility(ctx, changes)
	k.mu.Lock()
	defer k.mu.Unlock()
	var failed error
	for i, it := range batch {
		switch _, kept := k.items[it]; {
		case !kept: // settled meanwhile
		case errs[i] == nil:
			it.hideFrom(sent, changes[i].visibility)
		case isGone(errs[i]):
			k.s.Logger().Info("A message was taken back: it was not extended in time", it.fields())
			k.lose(it)
		default:
			failed = errs[i]
			it.due = time.Now() // at the next check
		}
	}
	if failed != nil {
		k.trouble.Failed(explain("sqs:ChangeMessageVisibility", failed))
	} else {
		k.trouble.Over()
	}
}

// lose marks an item as lost. k.mu must be held.
func (k *keeper) lose(it *item) {
	close(it.lost)
	delete(k.items, it)
	if it.cancel != nil {
		it.cancel(ErrTakenBack)
	}
}

func (it *item) fields() watermill.LogFields {
	return watermill.LogFields{"message_id": aws.ToString(it.message.MessageId), "received": it.received, "count": it.count}
}

// hiddenUntil returns until when the item is hidden from others.
func (k *keeper) hiddenUntil(it *item) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return it.hidden
}
