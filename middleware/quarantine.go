package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// quarantine keeps the whole message, so that it may be acked. Until that is done it
// is held; a message that cannot be kept goes back to the broker.
func (d *delivery) quarantine(reason stores.Reason, cause error) error {
	for {
		err := d.keep(reason, cause)
		if err == nil {
			return nil
		}
		if errors.Is(err, errNotEncoded) {
			switch decided, err := d.notQuarantined(err); {
			case err != nil:
				return err
			case decided:
				continue
			}
		}
		if !d.hold(err) && !d.unkept(err) {
			return d.notNow(err)
		}
	}
}

// keep tries once to put the message into quarantine, as it arrived.
func (d *delivery) keep(reason stores.Reason, cause error) error {
	q := stores.Quarantined{
		Consumer:    d.claim.Key.Consumer,
		ID:          d.claim.Key.ID,
		Reason:      reason,
		Detail:      withStack(errorText(cause), cause),
		Fingerprint: d.claim.Fingerprint,
		Topic:       d.topic,
		Coordinates: d.facts.Coordinates,
		UUID:        d.origin().uuid,
	}
	q.Identity = d.identity(q)
	kept, codec, err := d.encode()
	refused := err != nil && (d.refused.unkept || refusedForGood(err))
	switch {
	case refused:
		d.complain("a message in quarantine is not kept: its codec refuses it", err)
		q.Detail, kept = noted(q.Detail, "not kept", err), Kept{}
	case err != nil:
		return fmt.Errorf("%w: %w", errNotEncoded, err)
	}
	q.Metadata, q.Payload, q.Codec = kept.Metadata, kept.Payload, codec
	q.OneWay = codec != "" && (refused || d.in.config.Keep.Codec.Decode == nil)
	if q.Fingerprint == (stores.Fingerprint{}) {
		q.Fingerprint = stores.NewFingerprint(d.in.config.Fingerprint.Key, d.payload)
	} else if d.payloadChanged() {
		q.Detail += " (the handler has changed the payload in place: it is not what arrived)"
	}
	if reason == stores.ReasonConflict {
		q.Existing = d.end.Verdict.Fingerprint
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.RecordTimeout)
	defer cancel()
	if err := d.in.store.Quarantine(ctx, q); err != nil {
		return fmt.Errorf("middleware: cannot keep the message in quarantine (%s): %w", reason, err)
	}
	d.answered()
	d.end.Result, d.end.Reason, d.end.Err = ResultQuarantined, reason, cause
	return nil
}

// notNow gives the delivery back without counting it as failed. If the handler has
// acked the message nobody will deliver it again, so it is kept.
func (d *delivery) notNow(cause error) error {
	d.uncount(cause)
	if d.retry == nil && d.acked() { // by a middleware around the inbox, if nothing has run
		early := fmt.Errorf("%w: %w", ErrAckedEarly, cause)
		err := d.keep(stores.ReasonAckedEarly, early)
		if d.unkept(err) {
			err = d.keep(stores.ReasonAckedEarly, early)
		}
		if err == nil {
			d.settle(cause, stores.ClassInterrupted)
			return nil
		}
		cause = errors.Join(ErrAckedEarly, cause, err)
	}
	d.end.Result = ResultNotNow
	brokers.SetGiveBack(d.msg, brokers.GiveBack{After: max(d.wait.pause, d.wait.due)})
	return &notNowError{cause: cause, held: d.wait.held()}
}
