package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
)

// ledger is what the database says.
type ledger struct {
	deductions  map[string][]order // by event id
	rows        int
	stock       map[string]int64 // by article
	quarantined map[hash][]quarantined
}

type hash [sha256.Size]byte

type quarantined struct {
	reason, detail string
	seen           int
}

func readLedger(ctx context.Context, db database) (ledger, error) {
	l := ledger{
		deductions:  make(map[string][]order),
		stock:       make(map[string]int64),
		quarantined: make(map[hash][]quarantined),
	}
	err := query(ctx, db.DB(), `SELECT event_id, sku, quantity FROM deduction`, func(rows *sql.Rows) error {
		var o order
		err := rows.Scan(&o.EventID, &o.SKU, &o.Quantity)
		l.deductions[o.EventID] = append(l.deductions[o.EventID], o)
		l.rows++
		return err
	})
	if err != nil {
		return l, err
	}
	err = query(ctx, db.DB(), `SELECT sku, quantity FROM stock`, func(rows *sql.Rows) error {
		var sku string
		var quantity int64
		err := rows.Scan(&sku, &quantity)
		l.stock[sku] = quantity
		return err
	})
	if err != nil {
		return l, err
	}
	err = query(ctx, db.DB(), `SELECT reason, detail, seen, payload FROM millpond_quarantine ORDER BY id`, func(rows *sql.Rows) error {
		var q quarantined
		var payload []byte
		err := rows.Scan(&q.reason, &q.detail, &q.seen, &payload)
		key := hash(sha256.Sum256(payload))
		l.quarantined[key] = append(l.quarantined[key], q)
		return err
	})
	return l, err
}

func query(ctx context.Context, db *sql.DB, text string, each func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("check: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}

// seen counts the deliveries that ended in quarantine.
func (l ledger) seen() int {
	n := 0
	for _, rows := range l.quarantined {
		for _, q := range rows {
			n += q.seen
		}
	}
	return n
}

// wrongStock counts the articles of which there are not as many left as the ledger
// says: both are written in one transaction, or not at all.
func (l ledger) wrongStock() int {
	left := make(map[string]int64)
	for sku := range l.stock {
		left[sku] = openingStock
	}
	for _, deductions := range l.deductions {
		for _, o := range deductions {
			left[o.SKU] -= o.Quantity
		}
	}
	wrong := 0
	for sku, quantity := range left {
		if stock, ok := l.stock[sku]; !ok || stock != quantity {
			wrong++
		}
	}
	return wrong
}

// version is one text that was sent under an id.
type version struct {
	order

	text hash
}

// sent is what the input says, by id. An event may have been sent in several
// versions: one of them counts, the others belong in quarantine.
type sent struct {
	lines      int
	versions   map[string][]version
	unreadable map[hash]bool
}

func readSent(events input) (sent, error) {
	s := sent{versions: make(map[string][]version), unreadable: make(map[hash]bool)}
	for l, err := range events.lines() {
		if err != nil {
			return s, err
		}
		s.lines++
		text := hash(sha256.Sum256(l.text))
		o, err := parseOrder(l.text)
		if err != nil {
			s.unreadable[text] = true
			continue
		}
		v := version{o, text}
		if !slices.Contains(s.versions[o.EventID], v) {
			s.versions[o.EventID] = append(s.versions[o.EventID], v)
		}
	}
	return s, nil
}

// compare reads the input again and looks for every event in the database.
func compare(events input, before, after ledger) (*result, error) {
	s, err := readSent(events)
	if err != nil {
		return nil, err
	}
	r := &result{
		Lines:          s.lines,
		Events:         len(s.versions) + len(s.unreadable),
		AppliedNow:     after.rows - before.rows,
		Quarantined:    make(map[string]*inQuarantine),
		StockWrong:     after.wrongStock(),
		quarantineSeen: after.seen() - before.seen(),
	}
	for text := range s.unreadable {
		r.keep(after, text)
	}
	for id, versions := range s.versions {
		r.judge(after, versions, after.deductions[id])
	}
	return r, nil
}

// judge compares one event with the deductions that were made for it.
func (r *result) judge(after ledger, versions []version, deductions []order) {
	applied := -1 // which version
	if len(deductions) > 0 {
		for i, v := range versions {
			if v.order == deductions[0] && (applied < 0 || len(after.quarantined[v.text]) == 0) {
				applied = i
			}
		}
		switch {
		case applied < 0:
			r.Altered++
			return
		case len(deductions) == 1:
			r.AppliedOnce++
		default:
			r.Doubled += len(deductions) - 1
		}
	}
	for i, v := range versions {
		if i != applied {
			r.keep(after, v.text)
		}
	}
}

// keep counts a text that must be in quarantine.
func (r *result) keep(after ledger, text hash) {
	if rows := after.quarantined[text]; len(rows) > 0 {
		r.quarantined(rows[0])
	} else {
		r.Lost++
	}
}
