package main

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// operator looks after what has failed: nobody else may say whether it has happened.
type operator struct {
	store    *sqlite.Store
	provider *provider

	open            atomic.Int64        // orders that are to be tried again, or decided
	first           map[int64]time.Time // seen
	charged, wasNot int
	err             error
}

// settle does what is to be done by hand, and reports whether nothing is.
func (op *operator) settle(ctx context.Context) bool {
	open, err := op.store.Messages(ctx, stores.MessageQuery{Limit: 100})
	if err != nil {
		return false
	}
	op.open.Store(int64(len(open)))
	for _, m := range open {
		if m.Status == stores.StatusFailed && op.err == nil {
			op.err = op.decide(ctx, m.Number)
		}
	}
	return len(open) == 0 || op.err != nil
}

// decide asks the provider. A request that is under way may still be booked: it is waited for.
func (op *operator) decide(ctx context.Context, number int64) error {
	if op.first == nil {
		op.first = make(map[int64]time.Time)
	}
	if op.first[number].IsZero() {
		op.first[number] = time.Now()
	}
	if time.Since(op.first[number]) < handlerTimeout {
		return nil
	}
	m, err := op.store.Message(ctx, number)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(m.Payload, &o); err != nil {
		return err
	}
	change := stores.Change{Verb: stores.VerbRetry, Filter: stores.Filter{Numbers: []int64{number}}, Actor: "bookkeeping", Reason: "the provider has not charged it", Limit: 1}
	charges := op.provider.charges(o.OrderID)
	if len(charges) > 0 {
		change.Verb, change.Reason = stores.VerbResolve, "charged as "+charges[0].Receipt+", booked by hand"
	}
	done, err := op.store.Change(ctx, change)
	if err != nil || done.Changed == 0 {
		return err
	}
	if delete(op.first, number); len(charges) == 0 {
		op.wasNot++
		return nil
	}
	op.charged++
	_, err = op.store.DB().ExecContext(ctx, insertPayment, o.OrderID, o.Cents, charges[0].Receipt)
	return err
}
