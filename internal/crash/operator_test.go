package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// operator decides about failed and quarantined messages, in every worker at once, so
// that it races with deliveries, retries and others of its kind, and dies with them.
type operator struct {
	store    stores.Inspector
	recorder *recorder
}

// decisions are made again and again. What is to be decided until all is at rest is in
// observer.open.
var decisions = []stores.Change{
	{Verb: stores.VerbRetry, Filter: stores.Filter{Class: stores.ClassPermanent, Status: []stores.Status{stores.StatusFailed}}},
	{Verb: stores.VerbDiscard, Filter: stores.Filter{Class: stores.ClassOutputs}},
	{Verb: stores.VerbDiscard, Filter: stores.Filter{Status: []stores.Status{stores.StatusPending}, ErrorContains: errHopeless.Error()}},
	{Verb: stores.VerbRetry, Filter: stores.Filter{Status: []stores.Status{stores.StatusPending}, ErrorContains: errFlaky.Error()}},
	{Verb: stores.VerbRetry, Filter: stores.Filter{Reserved: true, ErrorContains: errFlaky.Error()}, Break: true, Reason: breakReason},
	{Verb: stores.VerbDiscard, Filter: stores.Filter{Reserved: true, ErrorContains: errHopeless.Error()}, Break: true, Reason: breakReason},
}

// breakReason is why workers lose what they have reserved.
const breakReason = "its worker may be dead"

func (o *operator) run(ctx context.Context) error {
	for pause.Sleep(ctx, 200*time.Millisecond) {
		for _, change := range decisions {
			if err := o.change(ctx, change); unexpected(ctx, err) {
				return fmt.Errorf("operator: %s: %w", change.Verb, err)
			}
		}
		if err := o.decide(ctx, stores.VerbRelease, stores.ReasonKeyTooLong); unexpected(ctx, err) {
			return err
		}
		if err := o.decide(ctx, stores.VerbReject, stores.ReasonNoKey); unexpected(ctx, err) {
			return err
		}
	}
	return nil
}

// unexpected errors are those that faults do not explain.
func unexpected(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, stores.ErrUnavailable)
}

// change carries out a decision, batch by batch.
func (o *operator) change(ctx context.Context, c stores.Change) error {
	n, highest, err := o.store.Matching(ctx, c.Filter, 1000)
	if err != nil || n == 0 {
		return err
	}
	c.Actor, c.Reason, c.UpTo, c.Limit = fmt.Sprint(o.recorder.worker.Index), cmp.Or(c.Reason, "it is time"), highest, 3
	for done := (stores.Changed{}); !done.Done; c.After = done.Next {
		o.recorder.at(ctx, pointRedriveStart)
		o.recorder.during(ctx, pointRedrive)
		if done, err = o.store.Change(ctx, c); err != nil {
			return err
		}
		o.recorder.say(ctx, saidDecided, fmt.Sprintf("%s: %+v", c.Verb, done))
		o.recorder.at(ctx, pointRedriveEnd)
	}
	return nil
}

// decide is about the quarantine. Another operator may have been faster.
func (o *operator) decide(ctx context.Context, verb stores.Verb, reason stores.Reason) error {
	rows, err := o.store.Quarantined(ctx, stores.QuarantineQuery{Reason: reason, Limit: 10})
	if err != nil {
		return err
	}
	for _, row := range rows {
		o.recorder.at(ctx, pointRedriveStart)
		err := o.store.Decide(ctx, stores.Decision{Verb: verb, RowID: row.RowID, Actor: "one of several", Reason: "it is time"})
		if err != nil && !errors.Is(err, stores.ErrChanged) {
			return err
		}
		o.recorder.at(ctx, pointRedriveEnd)
	}
	return nil
}

// atRest reports whether nothing will happen any more without a new delivery.
func (tr *trial) atRest(ctx context.Context) bool {
	n, err := tr.system.observer.open(ctx, tr.Operated)
	return err == nil && n == 0
}
