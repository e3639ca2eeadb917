package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// settledBefore acks a message that has failed for good or was discarded. If the broker
// still had it then, its row has no content, and after the ack nobody would: so it is
// written down first. While it cannot be, the delivery is held.
func (d *delivery) settledBefore(seen stores.FailureState) (reason error, settled bool, err error) {
	if d.retry == nil && seen.Content == stores.ContentNone {
		switch err := d.keepContent(seen.Version); {
		case errors.Is(err, stores.ErrChanged): // an operator wants it after all, or another delivery was faster
			return ErrInFlight, false, nil
		case errors.Is(err, stores.ErrTooLarge) && !d.tooLarge:
			d.tooLarge = true
			return d.settledBefore(seen)
		case err != nil:
			return d.unanswered(err), false, nil
		}
	}
	d.end.Result = ResultSettled
	return nil, true, nil
}

func (d *delivery) keepContent(version int64) error {
	c := &stores.Content{State: stores.ContentTooLarge, UUID: d.uuid}
	if !d.tooLarge {
		var err error
		if c, err = d.content(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.RecordTimeout)
	defer cancel()
	if err := d.in.store.KeepContent(ctx, d.claim.Key, version, *c); err != nil {
		return fmt.Errorf("middleware: cannot keep the message, which was discarded: %w", err)
	}
	d.answered()
	return nil
}
