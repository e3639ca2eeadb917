package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// audited returns an entry for the audit.
func (s *Store) audited(ctx context.Context, e stores.AuditEntry) (item, error) {
	id, err := s.count(ctx, "a", 1) // entries are listed in this order
	if err != nil {
		return nil, err
	}
	i := key(kindAudit, nil, number8(id))
	i["num"], i["at"], i["of"], i["own"] = num(id), num(s.clock.now()), num(e.Number), bin(newOwn())
	for name, value := range map[string]string{
		"svc": e.Consumer.Service, "hdl": e.Consumer.Handler, "vrb": string(e.Verb), "bef": e.Before, "aft": e.After,
		"act": sqlstore.Text(e.Actor, stores.MaxDetailBytes), "rsn": sqlstore.Text(e.Reason, stores.MaxDetailBytes),
	} {
		i[name] = str(value)
	}
	if len(e.MessageID) > 0 {
		i["mid"] = bin(e.MessageID)
	}
	return i, nil
}

// writing returns a guarded write of a row.
func (s *Store) writing(key item, r *row, g guard) types.TransactWriteItem {
	r.own = newOwn()
	r.follow(g.seen)
	return types.TransactWriteItem{Put: g.put(s.table, r.put(key))}
}

// transact carries out an operator's decision, and adds its entry to the audit, which proves it. It
// also deletes what the decision makes useless: as much as fits in the same transaction, the rest
// after it. The error wraps ErrChanged if the condition of a write does not hold; such a condition
// never holds again.
func (s *Store) transact(ctx context.Context, e stores.AuditEntry, gone []types.TransactWriteItem, writes ...types.TransactWriteItem) error {
	entry, err := s.audited(ctx, e)
	if err != nil {
		return err
	}
	fit := min(len(gone), MaxOperations-len(writes))
	all := slices.Concat(writes, gone[:fit])
	end, err := s.send(ctx, write{put: guard{}.put(s.table, entry), others: all})
	if end != committed && conditionOf(err, all) != nil {
		end = declined
	}
	if err := s.outcome(ctx, end, err); err != nil {
		return err
	}
	return s.remove(ctx, gone[fit:])
}

// forget removes everything that may be personal from a row, except the id.
func (r *row) forget() {
	r.cause, r.failure, r.orderKey, r.history, r.codec, r.uuid, r.steps = "", "", nil, nil, "", nil, false
	r.contentID, r.chunks, r.bytes, r.packed = nil, 0, 0, 0
}

// Change implements stores.Inspector. Each message is changed in its own transaction, with its
// entry in the audit.
func (s *Store) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	if err := s.listing(ctx, c.Limit); err != nil {
		return stores.Changed{}, err
	}
	switch c.Verb {
	case stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve:
	case stores.VerbErase:
		if len(c.Filter.Status) == 0 { // pending messages are erased only if Status names them
			c.Filter.Status = []stores.Status{stores.StatusFailed, stores.StatusDiscarded}
		}
	default:
		return stores.Changed{}, fmt.Errorf("dynamodb: %q is no verb for failed messages: use %q, %q, %q or %q", c.Verb, stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve, stores.VerbErase)
	}
	now, done, seen := s.clock.now(), stores.Changed{Next: c.After}, 0
	var failed error
	err := s.matching(ctx, c.Filter, after(c.After, c.UpTo), func(l listed) bool {
		if !concerns(c.Verb, l.row, now) {
			return true
		}
		seen++
		failed = s.changeOne(ctx, &c, l, now, &done)
		done.Next = max(done.Next, l.number)
		return failed == nil && seen < c.Limit
	})
	done.Done = seen < c.Limit
	if err := errors.Join(err, failed); err != nil {
		return stores.Changed{}, err
	}
	return done, nil
}

// concerns reports whether a verb would change a row.
func concerns(v stores.Verb, r *row, now int64) bool {
	erased := r.content == stores.ContentErased
	if v != stores.VerbRetry {
		return v == stores.VerbResolve || v == stores.VerbErase && !erased || v == stores.VerbDiscard && !r.is(stores.StatusDiscarded)
	}
	retried := r.is(stores.StatusPending) && r.redrives > 0 && r.attempts == 0 && r.uncounted == 0 && r.due <= now && !r.presumed && !r.reserved
	return !retried && !erased
}

func (s *Store) changeOne(ctx context.Context, c *stores.Change, l listed, now int64, done *stores.Changed) error {
	k := stores.Key{Consumer: l.consumer, ID: idOf(l.key)}
	has := l.has(now)
	switch {
	case has && !c.Break:
		done.Reserved++
		return nil
	case s.flying(k):
		done.Busy++
		return nil
	}
	before := l.status.String()
	if has {
		before = "reserved"
	}
	r := *l.row
	r.suspect = r.suspect || r.reserved || r.holder != ""
	r.reserved, r.holder, r.revision = false, "", r.revision+1
	gone, err := s.decided(ctx, c.Verb, l, &r, now)
	if err != nil {
		return err
	}
	if c.Verb != stores.VerbResolve {
		r.index(sqlstore.ConsumerNumber(k.Consumer), k.ID)
	}
	err = s.transact(ctx, stores.AuditEntry{
		Verb: c.Verb, Actor: c.Actor, Reason: c.Reason, Consumer: k.Consumer, MessageID: k.ID, Number: l.number, Before: before, After: r.status.String(),
	}, gone, s.writing(messageKey(k), &r, guard{seen: l.row, due: true}))
	switch {
	case errors.Is(err, stores.ErrChanged):
		done.Busy++
		return nil
	case err != nil:
		return err
	}
	done.Changed++
	if (c.Verb == stores.VerbErase || c.Verb == stores.VerbResolve) && l.holder != "" { // the holder may have recorded a step in the meantime
		late, err := s.kept(ctx, l.key, &row{attempted: attempted{steps: true}})
		if err = errors.Join(err, s.remove(ctx, late)); err != nil {
			return err
		}
	}
	if c.Verb == stores.VerbRetry && r.content != stores.ContentKept {
		done.Redelivered++
	}
	return nil
}

// decided changes a row as a verb says, and returns the deletions that belong to it.
func (s *Store) decided(ctx context.Context, v stores.Verb, l listed, r *row, now int64) (gone []types.TransactWriteItem, err error) {
	switch v {
	case stores.VerbRetry:
		r.status, r.attempts, r.uncounted, r.presumed, r.redrives, r.budgetAt, r.due = stores.StatusPending, 0, 0, false, r.redrives+1, now, now
		r.placement = stores.PlacementParked
		if r.content != stores.ContentKept {
			r.placement, r.orderKey = stores.PlacementRedelivered, nil
		}
	case stores.VerbErase:
		r.status, r.content = stores.StatusDiscarded, stores.ContentErased
		gone, err = s.kept(ctx, l.key, l.row)
		r.forget()
	case stores.VerbResolve:
		gone, err = s.kept(ctx, l.key, l.row)
		*r = row{status: stores.StatusCompleted, fingerprint: r.fingerprint, trace: r.trace, completedAt: now, expires: s.expiry(now)}
	default:
		r.status = stores.StatusDiscarded
	}
	return gone, err
}

// Quarantine implements stores.Quarantine. A message that is already there takes one write, a new
// one three.
func (s *Store) Quarantine(ctx context.Context, q stores.Quarantined) error {
	consumer, err := s.known.Consumer(q.Consumer)
	if err != nil {
		return err
	}
	hash, now := q.IdentityHash(), s.clock.now()
	sk := append(hash[:], q.Fingerprint.Bytes()...)
	sk = append(sk, 0)
	sk = append(sk, sqlstore.Text(string(q.Reason), maxWordBytes)...)
	k := key(kindQuarantine, number8(consumer), sk)
	for {
		me := newOwn() // a repeated request must not count twice
		_, err := s.update(ctx, s.table, k, "SET #lst = :now, #sow = :me ADD #seen :one", "attribute_exists(pk) AND (attribute_not_exists(#sow) OR #sow <> :me)",
			item{":now": num(now), ":one": num(1), ":me": bin(me)})
		err = s.refused(ctx, err, func(there item) bool { return string(blob(there["sow"])) == string(me) })
		if !errors.Is(err, stores.ErrChanged) {
			return err
		}
		if err := s.detain(ctx, k, consumer, q, now); !errors.Is(err, stores.ErrChanged) {
			return err
		}
	}
}

// detain writes a new row of the quarantine.
func (s *Store) detain(ctx context.Context, k item, consumer int64, q stores.Quarantined, now int64) error {
	number, err := s.draw(ctx)
	if err != nil {
		return err
	}
	r := &row{
		fingerprint: q.Fingerprint.Bytes(), list: heldPrefix + partition(consumer, q.ID),
		identity: identity{
			number: number, firstAt: now, lastAt: now, uuid: []byte(q.UUID), id: sqlstore.NonEmpty(q.ID),
			topic: sqlstore.Text(q.Topic, maxPlaceBytes), coordinates: sqlstore.Text(q.Coordinates, maxPlaceBytes),
		},
		contentAt: contentAt{codec: sqlstore.Text(q.Codec, maxWordBytes)},
		quarantined: quarantined{
			reason: stores.Reason(sqlstore.Text(string(q.Reason), maxWordBytes)), state: stores.QuarantineHeld,
			detail: sqlstore.Text(q.Detail, stores.MaxDetailBytes), existing: q.Existing.Bytes(), seen: 1, oneWay: q.OneWay,
		},
	}
	if len(q.ID) > maxPlaceBytes*100 { // the id is in the item
		return fmt.Errorf("dynamodb: %w: its id has %d bytes", stores.ErrTooLarge, len(q.ID))
	}
	if err := s.store(ctx, r, q.Metadata, q.Facts, q.Payload); err != nil {
		return err
	}
	err = s.write(ctx, k, r, guard{})
	s.abandon(ctx, k, r, err)
	return err
}

// heldPrefix begins the names of the index partitions of the quarantine.
const heldPrefix = "q#"
