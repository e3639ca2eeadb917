package storetest

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// What is committed, as an independent connection sees it. Everything is read and
// then filtered here: no parameters means no dialect.

// row is a row of the inbox.
type row struct {
	consumer    stores.Consumer
	id          []byte
	status      stores.Status
	completed   bool
	fingerprint []byte
}

// parseStatus reads a status as a number or as a word.
func parseStatus(s string) (stores.Status, error) {
	if status, ok := stores.ParseStatus(s); ok {
		return status, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return stores.Status(n), err
}

func (b *bench) query(query string, scan func(*sql.Rows) error) {
	b.tb.Helper()
	if err := queryAll(b.ctx, b.db.Admin, query, scan); err != nil {
		b.tb.Fatalf("storetest: read the committed state: %v", err)
	}
}

func queryAll(ctx context.Context, db *sql.DB, query string, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// rows returns all rows of the inbox.
func (b *bench) rows() []row {
	b.tb.Helper()
	var all []row
	b.query(`SELECT c.service, c.handler, i.message_id, i.status, i.fingerprint
FROM millpond_inbox i JOIN millpond_consumer c ON c.id = i.consumer`, func(rows *sql.Rows) error {
		var r row
		var status string
		err := rows.Scan(&r.consumer.Service, &r.consumer.Handler, &r.id, &status, &r.fingerprint)
		if err != nil {
			return err
		}
		r.status, err = parseStatus(status)
		r.completed = r.status == stores.StatusCompleted
		all = append(all, r)
		return err
	})
	return all
}

// completed reports whether the key's row is completed.
func (b *bench) completed(k stores.Key) bool {
	b.tb.Helper()
	return slices.ContainsFunc(b.rows(), func(r row) bool {
		return r.completed && r.consumer == k.Consumer && bytes.Equal(r.id, k.ID)
	})
}

// effects returns the committed effects under an effect key, in a fixed order.
func (b *bench) effects(key string) []Effect {
	b.tb.Helper()
	return slices.DeleteFunc(b.allEffects(), func(e Effect) bool { return e.Key != key })
}

func (b *bench) allEffects() []Effect {
	b.tb.Helper()
	var all []Effect
	b.query("SELECT effect_key, label, run FROM "+EffectTable, func(rows *sql.Rows) error {
		var e Effect
		err := rows.Scan(&e.Key, &e.Label, &e.Run)
		all = append(all, e)
		return err
	})
	slices.SortFunc(all, func(a, b Effect) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Label, b.Label), cmp.Compare(a.Run, b.Run))
	})
	return all
}

// quarantined returns the quarantine, the first row first.
func (b *bench) quarantined() []stores.QuarantineRow {
	b.tb.Helper()
	read := b.h.Quarantined
	if read == nil {
		read = readQuarantine
	}
	rows, err := read(b.ctx, b.db.Admin)
	if err != nil {
		b.tb.Fatalf("storetest: read the quarantine: %v", err)
	}
	return rows
}

// quarantinedAs returns the rows of one id.
func (b *bench) quarantinedAs(k stores.Key) []stores.QuarantineRow {
	b.tb.Helper()
	return slices.DeleteFunc(b.quarantined(), func(r stores.QuarantineRow) bool {
		return r.Consumer != k.Consumer || !bytes.Equal(r.ID, k.ID)
	})
}

func readQuarantine(ctx context.Context, admin *sql.DB) ([]stores.QuarantineRow, error) {
	var all []stores.QuarantineRow
	err := queryAll(ctx, admin, `SELECT q.id, c.service, c.handler, q.message_id, q.fingerprint, q.existing, q.reason,
q.detail, q.topic, q.coordinates, q.uuid, q.metadata, q.facts, q.payload, q.seen, q.codec, q.one_way, q.status
FROM millpond_quarantine q JOIN millpond_consumer c ON c.id = q.consumer ORDER BY q.id`, func(rows *sql.Rows) error {
		var r stores.QuarantineRow
		var reason, status string
		var fingerprint, existing, uuid, metadata, facts []byte
		err := rows.Scan(&r.RowID, &r.Consumer.Service, &r.Consumer.Handler, &r.ID, &fingerprint, &existing, &reason,
			&r.Detail, &r.Topic, &r.Coordinates, &uuid, &metadata, &facts, (*blob)(&r.Payload), &r.Seen, &r.Codec, &r.OneWay, &status)
		if err != nil {
			return err
		}
		r.Reason, r.UUID, r.Status = stores.Reason(reason), string(uuid), stores.QuarantineStatus(status)
		if r.Fingerprint, err = stores.ParseFingerprint(fingerprint); err != nil {
			return err
		}
		if r.Existing, err = stores.ParseFingerprint(existing); err != nil {
			return err
		}
		if r.Metadata, err = sqlstore.DecodeMetadata(metadata); err != nil {
			return err
		}
		r.Facts, err = sqlstore.DecodeFacts(facts)
		all = append(all, r)
		return err
	})
	return all, err
}

// blob is bytes as they are in the column: drivers give nil for empty ones.
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	v, ok := value.([]byte)
	if *b = slices.Clone(v); ok && *b == nil {
		*b = blob{}
	}
	if value != nil && !ok {
		return fmt.Errorf("storetest: the payload is a %T", value)
	}
	return nil
}

// snapshot returns the whole inbox, what has failed and all effects as text, to notice
// any change.
func (b *bench) snapshot() []string {
	b.tb.Helper()
	lines := append(b.dump("millpond_inbox"), b.dump("millpond_failure")...)
	return append(lines, b.dump(EffectTable)...)
}

// dump returns each row of a table as text, sorted.
func (b *bench) dump(table string) []string {
	b.tb.Helper()
	var lines []string
	b.query("SELECT * FROM "+table, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return err
		}
		var line strings.Builder
		line.WriteString(table)
		for i, column := range columns {
			fmt.Fprintf(&line, " %s=%v", column, *values[i].(*any))
		}
		lines = append(lines, line.String())
		return nil
	})
	slices.Sort(lines)
	return lines
}

// unchanged fails if anything was committed since before was taken.
func (b *bench) unchanged(before []string, what string) {
	b.tb.Helper()
	if after := b.snapshot(); !slices.Equal(before, after) {
		b.tb.Errorf("%s changed the committed state\nfrom\n\t%s\nto\n\t%s", what, strings.Join(before, "\n\t"), strings.Join(after, "\n\t"))
	}
}
