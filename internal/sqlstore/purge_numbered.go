package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// purgedTable is a table whose rows are purged by number.
type purgedTable struct {
	from   string // with the condition of the kind
	number string
	time   string
	narrow string // columns that every purge needs: consumer and message id
	wide   string // columns for an archive
	locked string // the same rows, for locking
	sorted bool   // times grow with numbers
}

var purgedTables = map[stores.PurgeKind]purgedTable{
	stores.PurgeFailed:    failureTable("4"),
	stores.PurgeDiscarded: failureTable("5"),
	stores.PurgeQuarantined: {
		from: "{schema.}{prefix}quarantine q WHERE ", number: "q.id", time: "q.last_at", narrow: "q.consumer, q.message_id",
		wide:   "q.fingerprint, NULL, q.reason, q.detail, q.topic, q.coordinates, q.codec, q.uuid, q.metadata, q.payload",
		locked: "{schema.}{prefix}quarantine q WHERE ",
	},
	stores.PurgePublished: {
		from: "{schema.}{prefix}outbox_history h WHERE ", number: "h.id", time: "h.published_at", narrow: "0, h.message_id",
		wide:   "NULL, h.traceparent, h.type, coalesce(h.error, ''), h.topic, h.destination, h.codec, NULL, h.metadata, h.payload",
		locked: "{schema.}{prefix}outbox_history h WHERE ", sorted: true,
	},
	stores.PurgeAudited: {
		from: "{schema.}{prefix}audit a WHERE ", number: "a.id", time: "a.at", narrow: "0, a.message_id",
		wide:   none + "a.verb, a.reason, a.actor, '', '', " + none + "NULL",
		locked: "{schema.}{prefix}audit a WHERE ", sorted: true,
	},
}

// none stands for two columns that a table lacks.
const none = "NULL, NULL, " //nolint:dupword // it is SQL

func failureTable(status string) purgedTable {
	return purgedTable{
		from: "{schema.}{prefix}failure f WHERE f.status = " + status + " AND ", number: "f.number", time: "f.last_at", narrow: "f.consumer, f.message_id",
		wide:   none + "f.class, f.error, f.topic, f.coordinates, f.codec, f.uuid, f.metadata, f.payload",
		locked: "{both} WHERE f.status = " + status + " AND ",
	}
}

func (p *purgedTable) columns(wide bool) string {
	text := "SELECT " + p.number + ", {us}" + p.time + "{/us}, " + p.narrow
	if wide {
		text += ", " + p.wide
	}
	return text + " FROM "
}

const (
	deleteNumbered = `DELETE FROM {schema.}{prefix}%s WHERE `

	deleteEnded = `DELETE FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ? AND (status = 4 OR status = 5)`

	deleteSteps = `DELETE FROM {schema.}{prefix}once WHERE consumer = ? AND message_id = ?`
)

var deletedTables = map[stores.PurgeKind][2]string{
	stores.PurgeFailed: {"failure", "number"}, stores.PurgeDiscarded: {"failure", "number"}, stores.PurgeQuarantined: {"quarantine", "id"},
	stores.PurgePublished: {"outbox_history", "id"}, stores.PurgeAudited: {"audit", "id"},
}

// numbered reads a range by number, and returns the rows that may be purged.
func (p *purge) numbered(ctx context.Context) (gone []int64, next string, err error) {
	table := purgedTables[p.Kind]
	after := int64(0)
	if p.After != "" {
		if after, err = strconv.ParseInt(p.After, 10, 64); err != nil {
			return nil, "", mistakef("%s: there is no range %q of this purge", p.t.name, p.After)
		}
	}
	text := table.columns(false) + table.from + table.number + " > ? ORDER BY " + table.number + " LIMIT ?"
	all, err := list(ctx, p.t.db, Statement{Text: p.t.fixed(text), Args: []any{after, p.Rows}}, func(rows Rows) (number int64, err error) {
		row, err := p.scan(rows, false)
		if err == nil && p.saw(row.consumer, row.Time) {
			gone = append(gone, row.Number)
		}
		return row.Number, err
	})
	if err != nil {
		return nil, "", err
	}
	if len(all) == p.Rows && !(table.sorted && len(gone) == 0) {
		next = strconv.FormatInt(all[len(all)-1], 10)
	}
	return gone, next, nil
}

// goingRow is a row with what its deletion needs.
type goingRow struct {
	stores.PurgedRow
	consumer int64
}

func (p *purge) scan(rows Rows, wide bool) (r goingRow, err error) {
	var (
		at                                 *int64
		fingerprint, trace, uuid, metadata []byte
	)
	into := []any{&r.Number, &at, &r.consumer, &r.ID}
	if wide {
		into = append(into, &fingerprint, &trace, &r.Class, &r.Error, &r.Topic, &r.Coordinates, &r.Codec, &uuid, &metadata, &r.Payload)
	}
	if err = rows.Scan(into...); err != nil {
		return r, err
	}
	r.Kind, r.Consumer, r.Time, r.UUID = p.Kind, p.names[r.consumer], Instant(at), string(uuid)
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
	copy(r.TraceParent[:], trace)
	r.Metadata, _ = DecodeMetadata(metadata) // unreadable metadata must not prevent the purge
	return r, nil
}

// byNumber purges a range by number. Locked rows are left for the next pass.
func (p *purge) byNumber(ctx context.Context) (r stores.PurgeRange, err error) {
	numbers, next, err := p.numbered(ctx)
	r.Next = next
	if err != nil || len(numbers) == 0 {
		return r, err
	}
	limits := p.limits
	err = p.t.db.Write(ctx, func(tx Sender) error {
		p.limits = make(map[int64]time.Time, len(limits))
		for consumer, limit := range limits {
			p.limits[consumer] = limit
			if p.Kind.Forgets() {
				if err := p.announced(ctx, tx, consumer); err != nil {
					return err
				}
			}
		}
		gone, err := p.lock(ctx, tx, numbers)
		if err != nil {
			return err
		}
		r.Deleted = len(gone)
		return p.remove(ctx, tx, gone)
	})
	return r, err
}

// lock locks the rows that may still be purged.
func (p *purge) lock(ctx context.Context, tx Sender, numbers []int64) (gone []goingRow, err error) {
	table := purgedTables[p.Kind]
	wide := p.Archive != nil
	locking := func(numbers []int64) Statement {
		return p.t.in(table.columns(wide)+table.locked+"%s{free}", table.number, numbers)
	}
	err = listFree(ctx, p.t, tx, numbers, locking, func(rows Rows) (number int64, err error) {
		row, err := p.scan(rows, wide)
		if limit, ok := p.limits[row.consumer]; err == nil && ok && !row.Time.After(limit) {
			gone = append(gone, row)
		}
		return row.Number, err
	})
	return gone, err
}

func (p *purge) remove(ctx context.Context, tx Sender, gone []goingRow) error {
	if len(gone) == 0 {
		return nil
	}
	var (
		numbers []int64
		shown   []stores.PurgedRow
	)
	for _, row := range gone {
		numbers, shown = append(numbers, row.Number), append(shown, row.PurgedRow)
	}
	if err := Archived(&p.PurgeQuery, shown); err != nil {
		return err
	}
	table := deletedTables[p.Kind]
	if _, err := tx.Send(ctx, p.t.in(strings.Replace(deleteNumbered, "%s", table[0], 1)+"%s", table[1], numbers)); err != nil {
		return err
	}
	if !p.Kind.Forgets() {
		return nil
	}
	slices.SortFunc(gone, func(a, b goingRow) int { return slices.Compare(a.ID, b.ID) })
	for _, row := range gone {
		for _, text := range []string{deleteSteps, deleteEnded} {
			if _, err := tx.Send(ctx, Statement{Text: p.t.fixed(text), Args: []any{row.consumer, row.ID}}); err != nil {
				return err
			}
		}
	}
	return nil
}
