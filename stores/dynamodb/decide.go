package dynamodb

import (
	"cmp"
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func held(l listed) stores.QuarantineRow {
	q := stores.QuarantineRow{
		Quarantined: stores.Quarantined{
			Consumer: l.consumer, ID: l.id, Reason: l.reason, Detail: l.detail, Topic: l.topic, Coordinates: l.coordinates,
			UUID: string(l.uuid), Codec: l.codec, OneWay: l.oneWay,
		},
		RowID: l.number, Seen: l.seen, FirstAt: instant(l.firstAt), LastAt: instant(l.lastAt),
		Status: l.state, DecidedAt: instant(l.decidedAt), PayloadBytes: l.bytes,
	}
	q.Fingerprint, _ = stores.ParseFingerprint(l.fingerprint) // a later version's cannot be shown
	q.Existing, _ = stores.ParseFingerprint(l.existing)
	return q
}

// Quarantined implements stores.Inspector.
func (s *Store) Quarantined(ctx context.Context, q stores.QuarantineQuery) ([]stores.QuarantineRow, error) {
	if err := s.listing(ctx, q.Limit); err != nil {
		return nil, err
	}
	if q.Status == "" {
		q.Status = stores.QuarantineHeld
	}
	consumers, err := s.allConsumers(ctx, q.Service, q.Handler)
	if err != nil {
		return nil, err
	}
	found := []stores.QuarantineRow{}
	err = s.list(ctx, consumers, heldPrefix, span{below: q.Before}, func(l listed) bool {
		if l.state == q.Status && (q.Reason == "" || l.reason == q.Reason) && (q.Topic == "" || l.topic == q.Topic) &&
			(q.ID == nil || string(l.id) == string(q.ID)) &&
			(q.Since.IsZero() || l.lastAt >= q.Since.UnixMicro()) && (q.Until.IsZero() || l.lastAt < q.Until.UnixMicro()) {
			found = append(found, held(l))
		}
		return len(found) < q.Limit
	})
	return found, err
}

// QuarantinedRow implements stores.Inspector.
func (s *Store) QuarantinedRow(ctx context.Context, rowID int64) (stores.QuarantineRow, error) {
	l, err := s.numbered(ctx, heldPrefix, rowID)
	if err != nil {
		return stores.QuarantineRow{}, err
	}
	content, err := s.load(ctx, l.row)
	if err != nil {
		return stores.QuarantineRow{}, err
	}
	q := held(l)
	q.Metadata, q.Facts, q.Payload, q.Unreadable = content.metadata, content.facts, content.payload, content.err
	return q, nil
}

// Decide implements stores.Inspector.
func (s *Store) Decide(ctx context.Context, d stores.Decision) error {
	ruling, ok := sqlstore.RulingOf(d.Verb)
	if !ok {
		return fmt.Errorf("dynamodb: %q is no verb for quarantined messages: use %q, %q, %q or %q", d.Verb, stores.VerbRelease, stores.VerbReject, stores.VerbReopen, stores.VerbErase)
	}
	ruling.From = cmp.Or(ruling.From, d.From)
	l, err := s.numbered(ctx, heldPrefix, d.RowID)
	if err != nil {
		return err
	}
	if err := ruling.Check(l.state, l.oneWay); err != nil {
		return fmt.Errorf("dynamodb: %w", err)
	}
	now := s.clock.now()
	r := *l.row
	r.state, r.decidedAt = ruling.Then, now
	if ruling.Then == stores.QuarantineHeld {
		r.decidedAt = 0
	}
	var gone []types.TransactWriteItem
	if d.Verb == stores.VerbErase {
		if gone, err = s.kept(ctx, l.key, l.row); err != nil {
			return err
		}
		r.forget()
		r.detail, r.oneWay = "", true
	}
	writes := []types.TransactWriteItem{s.writing(l.key, &r, guard{seen: l.row})}
	var (
		released stores.Key
		out      *row
	)
	if d.Verb == stores.VerbRelease {
		if released, out, err = s.letOut(ctx, l, now); err != nil {
			return err
		}
		writes = append(writes, s.writing(messageKey(released), out, guard{}))
	}
	err = s.transact(ctx, stores.AuditEntry{
		Verb: d.Verb, Actor: d.Actor, Reason: d.Reason, Consumer: l.consumer, MessageID: l.id, Number: l.number, Before: string(l.state), After: string(ruling.Then),
	}, gone, writes...)
	if out != nil {
		s.abandon(ctx, messageKey(released), out, err)
	}
	return err
}

// classReleased is the class of messages that an operator released from quarantine.
const classReleased = "released"

// letOut returns a parked row for the message, due now, with an id of its own and a copy of the
// content.
func (s *Store) letOut(ctx context.Context, l listed, now int64) (stores.Key, *row, error) {
	k := stores.Key{Consumer: l.consumer, ID: stores.ReleasedID(l.number)}
	content, err := s.load(ctx, l.row)
	if err == nil {
		err = content.err
	}
	if err != nil {
		return k, nil, err
	}
	number, err := s.draw(ctx)
	if err != nil {
		return k, nil, err
	}
	why := string(l.reason)
	if l.detail != "" {
		why += ": " + l.detail
	}
	why = sqlstore.Text(why, stores.MaxErrorBytes)
	r := &row{
		status: stores.StatusPending, fingerprint: l.fingerprint,
		identity:    identity{number: number, firstAt: now, lastAt: now, topic: l.topic, coordinates: l.coordinates, uuid: l.uuid},
		contentAt:   contentAt{content: stores.ContentKept, codec: l.codec},
		attempted:   attempted{placement: stores.PlacementParked, class: classReleased, failure: why, cause: stores.CauseOf(classReleased, why), budgetAt: now},
		reservation: reservation{due: now},
	}
	r.index(sqlstore.ConsumerNumber(k.Consumer), k.ID)
	return k, r, s.store(ctx, r, content.metadata, content.facts, content.payload)
}
