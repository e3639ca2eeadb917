package sqlstore

import (
	"cmp"
	"context"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

const (
	lockHeld = `SELECT status, one_way, reason, detail FROM {schema.}{prefix}quarantine WHERE id = ?{for update}`

	decideHeld = `UPDATE {schema.}{prefix}quarantine SET status = ?, decided_at = %s WHERE id = ? AND status = ?`

	eraseHeld = `UPDATE {schema.}{prefix}quarantine SET detail = '', codec = '', one_way = true, uuid = NULL, metadata = NULL, facts = NULL, payload = NULL WHERE id = ?`

	insertReleased = `INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint)
SELECT consumer, ?, 3, CASE WHEN fingerprint <> {empty} THEN fingerprint END FROM {schema.}{prefix}quarantine WHERE id = ?`

	keepReleased = `INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, content, attempts, uncounted,
	due_at, budget_at, first_at, last_at, class, cause, error, topic, coordinates, history, codec, uuid, metadata, facts, payload)
SELECT consumer, ?, 3, 1, 1, 0, 0, {now}, {now}, {now}, {now}, ?, ?, ?, topic, coordinates, '[]', codec, uuid, metadata, facts, payload
FROM {schema.}{prefix}quarantine WHERE id = ?`

	auditDecision = `INSERT INTO {schema.}{prefix}audit (at, verb, actor, reason, consumer, number, message_id, {before}, {after})
SELECT {now}, ?, ?, ?, consumer, id, message_id, ?, ? FROM {schema.}{prefix}quarantine WHERE id = ?`
)

// classReleased is the class of messages that an operator released from quarantine. They have not
// failed.
const classReleased stores.Class = "released"

// Ruling is what a decision does to a quarantined message.
type Ruling struct {
	From, Then stores.QuarantineStatus // From "": any other than Then
	whole      bool                    // it needs the whole message
}

var rulings = map[stores.Verb]Ruling{
	stores.VerbRelease: {From: stores.QuarantineHeld, Then: stores.QuarantineReleased, whole: true},
	stores.VerbReject:  {From: stores.QuarantineHeld, Then: stores.QuarantineRejected},
	stores.VerbReopen:  {From: stores.QuarantineRejected, Then: stores.QuarantineHeld},
	stores.VerbErase:   {Then: stores.QuarantineErased},
}

// RulingOf returns a verb's ruling. ok is false for verbs that do not concern the quarantine.
func RulingOf(v stores.Verb) (r Ruling, ok bool) {
	r, ok = rulings[v]
	return r, ok
}

// Check returns Decide's error for a row in this state.
func (r Ruling) Check(was stores.QuarantineStatus, oneWay bool) error {
	switch {
	case was == r.Then, r.From != "" && was != r.From:
		return stores.ErrChanged
	case r.whole && oneWay:
		return stores.ErrNotKept
	}
	return nil
}

// Decide implements stores.Inspector.
func (s Store) Decide(ctx context.Context, d stores.Decision) error {
	return s.t.Inspect(ctx, 1, func() error {
		if _, ok := RulingOf(d.Verb); !ok {
			return mistakef("%s: %q is no verb for quarantined messages: use %q, %q, %q or %q", s.t.name, d.Verb, stores.VerbRelease, stores.VerbReject, stores.VerbReopen, stores.VerbErase)
		}
		return s.t.db.Write(ctx, func(tx Sender) error { return s.t.decide(ctx, tx, d) })
	})
}

func (t *Tables) decide(ctx context.Context, tx Sender, d stores.Decision) error {
	r, _ := RulingOf(d.Verb)
	r.From = cmp.Or(r.From, d.From)
	var (
		was            stores.QuarantineStatus
		oneWay         bool
		reason, detail string
	)
	found, err := First(ctx, tx, Statement{Text: t.fixed(lockHeld), Args: []any{d.RowID}}, &was, &oneWay, &reason, &detail)
	switch {
	case err != nil:
		return err
	case !found:
		return stores.ErrNotFound
	}
	if err := r.Check(was, oneWay); err != nil {
		return err
	}
	switch d.Verb {
	case stores.VerbRelease:
		if detail != "" {
			reason += ": " + detail
		}
		err = t.letOut(ctx, tx, d.RowID, reason)
	case stores.VerbErase:
		err = one(tx.Send(ctx, Statement{Text: t.fixed(eraseHeld), Args: []any{d.RowID}}))
	default:
	}
	if err != nil {
		return err
	}
	at := "{now}"
	if r.Then == stores.QuarantineHeld {
		at = "NULL"
	}
	if err := one(tx.Send(ctx, Statement{Text: t.fixed(strings.Replace(decideHeld, "%s", at, 1)), Args: []any{string(r.Then), d.RowID, string(was)}})); err != nil {
		return err
	}
	return one(tx.Send(ctx, Statement{Text: t.fixed(auditDecision), Args: []any{
		string(d.Verb), Text(d.Actor, stores.MaxDetailBytes), Text(d.Reason, stores.MaxDetailBytes), string(was), string(r.Then), d.RowID,
	}}))
}

// letOut inserts a row for the message under an id of its own, parked and due.
func (t *Tables) letOut(ctx context.Context, tx Sender, rowID int64, reason string) error {
	id := stores.ReleasedID(rowID)
	err := one(tx.Send(ctx, Statement{Text: t.fixed(insertReleased), Args: []any{id, rowID}}))
	if t.db.Taken(err) {
		return stores.ErrChanged
	}
	if err != nil {
		return err
	}
	reason = Text(reason, stores.MaxErrorBytes)
	return one(tx.Send(ctx, Statement{Text: t.fixed(keepReleased), Args: []any{id, string(classReleased), stores.CauseOf(classReleased, reason), reason, rowID}}))
}
