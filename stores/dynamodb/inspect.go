package dynamodb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// message returns a row for operators, without its content.
func (s *Store) message(l listed) stores.Message {
	m := stores.Message{
		Key: stores.Key{Consumer: l.consumer, ID: idOf(l.key)}, Number: l.number, FailureState: s.state(l.row),
		Reserved: l.has(s.clock.now()), Holder: l.holder, Redrives: l.redrives,
		FirstAt: instant(l.firstAt), LastAt: instant(l.lastAt), DueAt: instant(l.due), CompletedAt: instant(l.completedAt),
		Error: l.failure, Cause: l.cause, Topic: l.topic, Coordinates: l.coordinates, OrderKey: l.orderKey,
		UUID: string(l.uuid), Codec: l.codec, PayloadBytes: l.bytes,
	}
	m.Status = l.status
	m.Fingerprint, _ = stores.ParseFingerprint(l.fingerprint) // a later version's cannot be shown
	copy(m.TraceParent[:], l.trace)
	return m
}

// whole returns a row with its content.
func (s *Store) whole(ctx context.Context, l listed) (stores.Message, error) {
	m := s.message(l)
	if l.number == 0 { // completed: its content is being deleted
		return m, nil
	}
	content, err := s.load(ctx, l.row)
	if err != nil {
		return m, err
	}
	m.Metadata, m.Facts, m.Payload, m.Unreadable = content.metadata, content.facts, content.payload, content.err
	if len(l.history) > 0 {
		if err := json.Unmarshal(l.history, &m.History); err != nil {
			m.Unreadable = errors.Join(m.Unreadable, fmt.Errorf("dynamodb: the history cannot be read: %w", err))
		}
	}
	return m, nil
}

// Messages implements stores.Inspector.
func (s *Store) Messages(ctx context.Context, q stores.MessageQuery) ([]stores.Message, error) {
	if err := s.listing(ctx, q.Limit); err != nil {
		return nil, err
	}
	found := []stores.Message{}
	err := s.matching(ctx, q.Filter, span{below: q.Before}, func(l listed) bool {
		found = append(found, s.message(l))
		return len(found) < q.Limit
	})
	return found, err
}

// numbered finds a failure or, with heldPrefix, a row of the quarantine.
func (s *Store) numbered(ctx context.Context, prefix string, number int64) (found listed, err error) {
	if err := s.ready(ctx); err != nil {
		return listed{}, err
	}
	consumers, err := s.allConsumers(ctx, "", "")
	if err != nil {
		return listed{}, err
	}
	err = s.list(ctx, consumers, prefix, span{above: number - 1, below: number + 1}, func(l listed) bool {
		found = l
		return false
	})
	if err == nil && found.row == nil {
		err = fmt.Errorf("dynamodb: %w", stores.ErrNotFound)
	}
	return found, err
}

// Message implements stores.Inspector.
func (s *Store) Message(ctx context.Context, number int64) (stores.Message, error) {
	l, err := s.numbered(ctx, "", number)
	if err != nil {
		return stores.Message{}, err
	}
	return s.whole(ctx, l)
}

// Find implements stores.Inspector.
func (s *Store) Find(ctx context.Context, k stores.Key) (stores.Message, error) {
	if err := s.ready(ctx); err != nil {
		return stores.Message{}, err
	}
	if err := k.Validate(); err != nil {
		return stores.Message{}, fmt.Errorf("dynamodb: %w: %w", stores.ErrNotFound, err)
	}
	r, err := s.read(ctx, messageKey(k))
	switch {
	case err != nil:
		return stores.Message{}, err
	case !r.known():
		return stores.Message{}, fmt.Errorf("dynamodb: %w", stores.ErrNotFound)
	}
	return s.whole(ctx, listed{key: messageKey(k), consumer: k.Consumer, row: r})
}

// Matching implements stores.Inspector.
func (s *Store) Matching(ctx context.Context, f stores.Filter, limit int) (n int, highest int64, err error) {
	if err := s.listing(ctx, limit); err != nil {
		return 0, 0, err
	}
	err = s.matching(ctx, f, span{}, func(l listed) bool {
		highest = max(highest, l.number)
		n++
		return n < limit
	})
	return n, highest, err
}

// Causes implements stores.Inspector. It reads every message that matches.
func (s *Store) Causes(ctx context.Context, f stores.Filter, limit int) (causes []stores.Cause, err error) {
	if err := s.listing(ctx, limit); err != nil {
		return nil, err
	}
	type which struct {
		stores.Consumer
		cause string
	}
	at := make(map[which]int) // index in causes, by latest message
	err = s.matching(ctx, f, span{}, func(l listed) bool {
		is := which{l.consumer, l.cause}
		if _, known := at[is]; !known {
			at[is] = len(causes)
			causes = append(causes, stores.Cause{Consumer: l.consumer, ID: l.cause, Class: l.class, Error: l.failure, FirstAt: instant(l.firstAt)})
		}
		c := &causes[at[is]]
		switch l.status {
		case stores.StatusPending:
			c.Pending++
		case stores.StatusFailed:
			c.Failed++
		default:
			c.Discarded++
		}
		if first := instant(l.firstAt); first.Before(c.FirstAt) {
			c.FirstAt = first
		}
		if last := instant(l.lastAt); last.After(c.LastAt) {
			c.LastAt = last
		}
		return true
	})
	slices.SortStableFunc(causes, func(a, b stores.Cause) int {
		return cmp.Compare(b.Pending+b.Failed+b.Discarded, a.Pending+a.Failed+a.Discarded)
	})
	return causes[:min(limit, len(causes))], err
}

// counted lists the statuses in Counts, by the prefix of their partitions.
var counted = map[string][]string{
	"":         {stores.StatusPending.String(), stores.StatusFailed.String(), stores.StatusDiscarded.String()},
	heldPrefix: {sqlstore.Quarantined},
}

// Counts implements stores.Inspector.
func (s *Store) Counts(ctx context.Context, limit int) (counts []stores.Count, err error) {
	if err := s.listing(ctx, limit); err != nil {
		return nil, err
	}
	consumers, err := s.allConsumers(ctx, "", "")
	for _, c := range consumers {
		for _, prefix := range []string{"", heldPrefix} {
			if err == nil {
				counts, err = s.counts(ctx, c, prefix, limit, counts)
			}
		}
	}
	return counts, err
}

// counts appends a consumer's counts. It stops where each status has more than limit.
func (s *Store) counts(ctx context.Context, c stores.Consumer, prefix string, limit int, counts []stores.Count) ([]stores.Count, error) {
	full, by := 0, make(map[string]stores.Count)
	err := s.list(ctx, []stores.Consumer{c}, prefix, span{ascending: true}, func(l listed) bool {
		status := l.status.String()
		if prefix == heldPrefix {
			status = sqlstore.Quarantined
			if l.state != stores.QuarantineHeld {
				return true
			}
		}
		n, has := by[status]
		switch {
		case !has:
			n = stores.Count{Consumer: c, Status: status, N: 1, Oldest: instant(l.firstAt)}
		case n.N < limit:
			n.N++
		case !n.More:
			n.More = true
			full++
		}
		by[status] = n
		return full < len(counted[prefix])
	})
	for _, status := range counted[prefix] {
		if n, has := by[status]; has {
			counts = append(counts, n)
		}
	}
	return counts, err
}

// Audit implements stores.Inspector.
func (s *Store) Audit(ctx context.Context, before int64, limit int) ([]stores.AuditEntry, error) {
	if err := s.listing(ctx, limit); err != nil {
		return nil, err
	}
	q := partitionQuery(kindAudit, nil)
	q.ScanIndexForward = aws.Bool(false)
	if before > 0 {
		q.KeyConditionExpression = aws.String("pk = :pk AND sk < :before")
		q.ExpressionAttributeValues[":before"] = bin(number8(before))
	}
	var entries []stores.AuditEntry
	err := s.query(ctx, q, func(i item) bool {
		entries = append(entries, stores.AuditEntry{
			ID: integer(i["num"]), At: instant(integer(i["at"])), Verb: stores.Verb(text(i["vrb"])), Actor: text(i["act"]), Reason: text(i["rsn"]),
			Consumer: consumerOf(i), MessageID: blob(i["mid"]), Number: integer(i["of"]), Before: text(i["bef"]), After: text(i["aft"]),
		})
		return len(entries) < limit
	})
	return entries, err
}
