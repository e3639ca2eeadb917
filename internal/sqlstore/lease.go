package sqlstore

import (
	"context"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

const (
	lockLeases = `SELECT unit, owner, CASE WHEN {until} > {now} THEN 1 ELSE 0 END FROM {schema.}{prefix}lease WHERE name = ? ORDER BY unit{for update}`

	insertLease = `INSERT INTO {schema.}{prefix}lease (name, unit, owner, {until}) VALUES (?, ?, ?, {now} + (?{microseconds})) {if free}`

	renewLeases = `UPDATE {schema.}{prefix}lease SET owner = ?, {until} = {now} + (?{microseconds}) WHERE name = ? AND %s`

	dropLeases = `DELETE FROM {schema.}{prefix}lease WHERE name = ? AND owner = ? AND %s`

	dropLapsed = `DELETE FROM {schema.}{prefix}lease WHERE name = ? AND {until} <= {now} AND %s`
)

// Lease implements stores.Leases, in one commit. Requests for units of one name run one after the
// other.
func (s Store) Lease(ctx context.Context, r stores.LeaseRequest) (leased stores.Leased, err error) {
	if err := s.t.Ready(ctx); err != nil {
		return leased, err
	}
	err = s.t.db.Write(ctx, func(tx Sender) error {
		leased, err = s.t.lease(ctx, tx, r)
		return err
	})
	if err != nil {
		return stores.Leased{}, s.t.Explain(ctx, err)
	}
	return leased, nil
}

// leases has the leases under one name, by unit.
type leases struct {
	held  map[int64]bool // held by the caller, expired or not
	taken map[int64]bool // held by others
	free  map[int64]bool // expired leases of others
}

func (t *Tables) lease(ctx context.Context, tx Sender, r stores.LeaseRequest) (leased stores.Leased, err error) {
	was, err := t.readLeases(ctx, tx, r)
	if err != nil {
		return leased, err
	}
	var known, inserted []int64
	for _, unit := range r.Units {
		if was.held[unit] {
			known = append(known, unit)
		}
	}
	for _, unit := range r.Units {
		switch {
		case len(known)+len(inserted) >= r.Limit || was.held[unit] || was.taken[unit]:
		case was.free[unit]:
			known = append(known, unit)
		default:
			n, err := tx.Send(ctx, Statement{Text: t.fixed(insertLease), Args: []any{r.Name, unit, r.Owner, r.TTL.Microseconds()}})
			if err != nil {
				return leased, err
			}
			if n == 0 { // another caller was faster
				was.taken[unit] = true
			} else {
				inserted = append(inserted, unit)
			}
		}
	}
	if len(known) > 0 {
		if _, err := tx.Send(ctx, t.in(renewLeases, "unit", known, r.Owner, r.TTL.Microseconds(), r.Name)); err != nil {
			return leased, err
		}
	}
	var lapsed []int64 // expired leases of dead owners
	for unit := range was.free {
		if !slices.Contains(r.Units, unit) {
			lapsed = append(lapsed, unit)
		}
	}
	if len(lapsed) > 0 {
		if _, err := tx.Send(ctx, t.in(dropLapsed, "unit", lapsed, r.Name)); err != nil {
			return leased, err
		}
	}
	leased.Units = slices.Concat(known, inserted)
	leased.Live = len(was.taken) + len(leased.Units)
	return leased, nil
}

func (t *Tables) readLeases(ctx context.Context, tx Sender, r stores.LeaseRequest) (leases, error) {
	was := leases{held: map[int64]bool{}, taken: map[int64]bool{}, free: map[int64]bool{}}
	_, err := list(ctx, tx, Statement{Text: t.fixed(lockLeases), Args: []any{r.Name}}, func(rows Rows) (unit int64, err error) {
		var (
			owner string
			valid int64
		)
		err = rows.Scan(&unit, &owner, &valid)
		switch {
		case owner == r.Owner:
			was.held[unit] = true
		case valid == 1:
			was.taken[unit] = true
		default:
			was.free[unit] = true
		}
		return unit, err
	})
	return was, err
}

// Unlease implements stores.Leases, in one commit.
func (s Store) Unlease(ctx context.Context, name, owner string, units []int64) error {
	if err := s.t.Ready(ctx); err != nil || len(units) == 0 {
		return err
	}
	if _, err := s.t.exec(ctx, s.t.in(dropLeases, "unit", units, name, owner)); err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
