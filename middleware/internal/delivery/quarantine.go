package delivery

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// quarantine keeps the whole message, so that it can be acked. Until then the delivery is held. A
// message that cannot be kept is given back.
func (d *Delivery) quarantine(n next) next {
	cause, acked := n.cause, n.reason == stores.ReasonAckedEarly
	if acked {
		cause = fmt.Errorf("%w: %w", ErrAckedEarly, cause)
	}
	err := d.tryQuarantine(n.reason, cause)
	switch {
	case err == nil && acked:
		d.settle(n.cause, n.class)
		return d.done(Quarantined)
	case err == nil:
		return d.done(Quarantined)
	case errors.Is(err, errNotEncoded):
		switch decided, again := d.notQuarantined(err); {
		case decided:
			return again
		case d.refused.unkept:
			return n
		}
	}
	n.state, n.why, n.back = holding, err, quarantining
	return n
}

// tryQuarantine tries once to quarantine the message as it arrived.
func (d *Delivery) tryQuarantine(reason stores.Reason, cause error) error {
	a := d.arrival
	q := stores.Quarantined{
		Consumer: d.arrival.Claim.Key.Consumer, ID: d.arrival.Claim.Key.ID, Fingerprint: d.arrival.Claim.Fingerprint,
		Reason: reason, Detail: panics.WithStack(text.Of(cause), cause),
		Topic: a.Origin.Topic, Coordinates: a.Origin.Coordinates, UUID: d.message().UUID,
	}
	q.Identity = d.identity(q)
	kept, codec, err := d.core.Keep.Encode(a.Contexts.Detached, d.message())
	refused := err != nil && (d.refused.unkept || refusedForGood(err))
	switch {
	case refused:
		d.complain("a message in quarantine is not kept: its codec refuses it", err)
		q.Detail, kept = text.Note(q.Detail, "not kept", err), keep.Message{}
	case err != nil:
		return fmt.Errorf("%w: %w", errNotEncoded, err)
	}
	q.Metadata, q.Payload, q.Facts, q.Codec = kept.Metadata, kept.Payload, kept.Facts, codec
	q.OneWay = codec != "" && (refused || d.core.Keep.OneWay())
	if q.Fingerprint == (stores.Fingerprint{}) {
		q.Fingerprint = stores.NewFingerprint(d.core.Fingerprint, a.Payload)
	} else if d.changed() {
		q.Detail += " (the handler has changed the payload in place: it is not what arrived)"
	}
	if reason == stores.ReasonConflict {
		q.Existing = d.end.Verdict.Fingerprint
	}
	if q.Facts.RanAs == nil {
		q.Facts.RanAs = d.toldAs(&q)
	}
	ctx, cancel := d.writes()
	defer cancel()
	if err := d.core.Rows.Quarantine(ctx, q); err != nil {
		return fmt.Errorf("middleware: cannot keep the message in quarantine (%s): %w", reason, err)
	}
	d.turn.Answered()
	d.end.Reason, d.end.Err = reason, cause
	return nil
}

// toldAs returns the id under which others will know the message's effects if it is released. It is
// derived from what arrived: a database that was restored to an earlier state gives out the number
// of its row again.
func (d *Delivery) toldAs(q *stores.Quarantined) []byte {
	if d.leased() != nil && mayHaveRun(q.Reason) {
		return q.ID
	}
	identity := q.IdentityHash()
	return fmt.Appendf(nil, "x:quarantine/%x", sha256.Sum256(append(append(identity[:], q.Fingerprint.Bytes()...), q.Reason...)))
}

// mayHaveRun reports whether a message quarantined for that reason may have run under its id. For a
// conflict, the one that ran is another message.
func mayHaveRun(r stores.Reason) bool {
	return r == stores.ReasonAckedEarly || r == stores.ReasonTxCommitted || r == stores.ReasonStale
}

// identity tells a message without an id from others in quarantine, by what arrived, because a
// codec may encode it differently each time. It is keyed like a fingerprint, because it reveals as
// much. Zero: the kept content tells them apart.
func (d *Delivery) identity(q stores.Quarantined) [sha256.Size]byte {
	if d.core.Keep.Codec == nil || len(q.ID) > 0 {
		return [sha256.Size]byte{}
	}
	was := d.message()
	q.Metadata, q.Payload, q.Facts = was.Metadata, was.Payload, was.Facts
	hash := q.IdentityHash()
	return stores.NewFingerprint(d.core.Fingerprint, hash[:]).Digest
}
