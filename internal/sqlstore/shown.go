package sqlstore

import (
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// MessageColumns are what [ScanMessage] reads of a failure f and its row i of the inbox,
// after the columns of the failure's state.
const MessageColumns = `f.consumer, f.message_id, i.fingerprint, i.traceparent, f.redrives, f.first_at, f.last_at, f.due_at,
	f.cause, f.error, f.topic, f.coordinates, f.order_key, f.uuid, f.codec, coalesce(length(f.payload), 0)`

// ScanMessage reads the columns of a failure's state into state, of which read makes sense
// afterwards, then [MessageColumns], and then more columns into those given.
func ScanMessage(scan Scan, c Consumers, state []any, read func() stores.FailureState, more ...any) (stores.Message, error) {
	var (
		m                        stores.Message
		consumer                 int64
		fingerprint, trace, uuid []byte
		firstAt, lastAt, dueAt   *int64
	)
	into := slices.Concat(state, []any{
		&consumer, &m.Key.ID, &fingerprint, &trace, &m.Redrives, &firstAt, &lastAt, &dueAt,
		&m.Cause, &m.Error, &m.Topic, &m.Coordinates, &m.OrderKey, &uuid, &m.Codec, &m.PayloadBytes,
	}, more)
	if err := scan(into...); err != nil {
		return m, err
	}
	m.FailureState = read()
	m.Number, _ = ParseVersion(m.Version)
	m.Key.Consumer = c[consumer]
	m.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // one of a later version cannot be shown
	copy(m.TraceParent[:], trace)
	m.UUID = string(uuid)
	m.FirstAt, m.LastAt, m.DueAt = Instant(firstAt), Instant(lastAt), Instant(dueAt)
	return m, nil
}

// QuarantineColumns are what [ScanQuarantined] reads of a row q.
const QuarantineColumns = `q.id, q.consumer, q.reason, q.detail, q.message_id, q.fingerprint, q.existing, q.topic, q.coordinates, q.uuid,
	q.codec, q.one_way, q.status, q.seen, q.first_at, q.last_at, q.decided_at, coalesce(length(q.payload), 0)`

// ScanQuarantined reads [QuarantineColumns], and more columns into those given.
func ScanQuarantined(scan Scan, c Consumers, more ...any) (stores.QuarantineRow, error) {
	var (
		r                           stores.QuarantineRow
		consumer                    int64
		fingerprint, existing, uuid []byte
		firstAt, lastAt, decidedAt  *int64
	)
	into := []any{
		&r.RowID, &consumer, &r.Reason, &r.Detail, &r.ID, &fingerprint, &existing, &r.Topic, &r.Coordinates, &uuid,
		&r.Codec, &r.OneWay, &r.Status, &r.Seen, &firstAt, &lastAt, &decidedAt, &r.PayloadBytes,
	}
	if err := scan(append(into, more...)...); err != nil {
		return r, err
	}
	r.Consumer = c[consumer]
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // those of a later version cannot be shown
	r.Existing, _ = stores.ParseFingerprint(existing)
	r.UUID = string(uuid)
	r.FirstAt, r.LastAt, r.DecidedAt = Instant(firstAt), Instant(lastAt), Instant(decidedAt)
	return r, nil
}
