package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// finalBefore acks a message that has failed for good or was discarded. If the broker
// still had it then, its row has no content, and after the ack nobody would: so it is
// written down first, and copied if it is a dead letter. While that cannot be done the
// delivery is held.
func (d *delivery) finalBefore(seen stores.FailureState) (reason error, settled bool, err error) {
	if d.retry == nil && seen.Content == stores.ContentNone {
		c, reason, err := d.contentBefore(seen)
		if c == nil {
			return reason, err != nil, err
		}
		if err := d.copyBefore(seen); err != nil {
			return err, false, nil
		}
		switch err := d.keepContent(seen.Version, c); {
		case errors.Is(err, stores.ErrChanged): // an operator wants it after all, or another delivery was faster
			return ErrInFlight, false, nil
		case errors.Is(err, stores.ErrTooLarge) && !d.tooLarge:
			d.tooLarge = true
			return d.finalBefore(seen)
		case err != nil:
			return d.unanswered(err), false, nil
		}
	}
	d.end.Result = ResultFinal
	return nil, true, nil
}

// contentBefore returns what is to be kept of the message; nil, and why, if that is not to
// be had now.
func (d *delivery) contentBefore(seen stores.FailureState) (c *stores.Content, reason, err error) {
	if d.tooLarge {
		return &stores.Content{State: stores.ContentTooLarge, UUID: d.origin().uuid}, nil, nil
	}
	if c, err = d.content(); err != nil {
		return d.refusedBefore(seen, err)
	}
	return c, nil, nil
}

// copyBefore publishes the copy of a dead letter that the delivery which failed has not
// published. What its last error was is in its row alone.
func (d *delivery) copyBefore(seen stores.FailureState) error {
	if seen.Status != stores.StatusFailed {
		return nil
	}
	f := d.newFailure(seen.Class, "")
	f.Attempts, d.refused.late = seen.Attempts, nil
	err := d.copyDeadLetter(f)
	if wait, _ := d.policy.patienceWith(seen.Age); err != nil && !wait {
		d.noCopy(f, err)
		return nil
	}
	return err
}

func (d *delivery) keepContent(version int64, c *stores.Content) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.RecordTimeout)
	defer cancel()
	if err := d.in.store.KeepContent(ctx, d.claim.Key, version, *c); err != nil {
		return fmt.Errorf("middleware: cannot keep the message, which has failed or was discarded: %w", err)
	}
	d.answered()
	return nil
}
