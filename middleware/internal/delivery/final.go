package delivery

import (
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// keepFinal acks a message that has failed for good or was discarded. If the broker still had the
// message at that time, its row has no content, and the ack would drop the only copy. So the
// message is first kept and, if it is a dead letter, copied. Until then the delivery is held.
func (d *Delivery) keepFinal() next {
	seen := d.end.Verdict.Failure
	if d.arrival.Retry != nil || seen.Content != stores.ContentNone {
		return d.done(Final)
	}
	c := d.without(stores.ContentTooLarge)
	if !d.refused.tooLarge {
		var err error
		if c, err = d.content(); err != nil {
			var n next
			if c, n = d.refusedBefore(seen, err); c == nil {
				return n
			}
		}
	}
	if err := d.copyBefore(seen); err != nil {
		return heldFor(err)
	}
	switch err := d.keepContent(seen.Version, c); {
	case errors.Is(err, stores.ErrChanged): // an operator retried it, or another delivery was faster
		return heldFor(ErrInFlight)
	case errors.Is(err, stores.ErrTooLarge) && !d.refused.tooLarge:
		d.refused.tooLarge = true
		return next{state: keeping}
	case err != nil:
		return heldFor(d.unanswered(err))
	}
	return d.done(Final)
}

// copyBefore publishes a dead letter's copy if the failed delivery did not. Only the row has the
// last error.
func (d *Delivery) copyBefore(seen stores.FailureState) error {
	if seen.Status != stores.StatusFailed {
		return nil
	}
	f := d.newFailure(seen.Class, "")
	f.Attempts, d.refused.late = seen.Attempts, nil
	err := d.copyLetter(f)
	if wait, _ := d.arrival.Policy.Patience(seen.Age); err != nil && !wait {
		d.withoutCopy(f, err)
		return nil
	}
	return err
}

func (d *Delivery) keepContent(version int64, c *stores.Content) error {
	ctx, cancel := d.writes()
	defer cancel()
	if err := d.core.Rows.KeepContent(ctx, d.arrival.Claim.Key, version, *c); err != nil {
		return fmt.Errorf("middleware: cannot keep the message, which has failed or was discarded: %w", err)
	}
	d.turn.Answered()
	return nil
}
