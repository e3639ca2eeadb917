package storetest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// brokenReservations break the rules of reserved messages and operators.
var brokenReservations = []variant{
	{
		name:  "Change touches what is reserved",
		wrap:  onChange("UPDATE millpond_failure SET reserved = 0, revision = revision + 1 WHERE reserved = 1", ""),
		fails: []string{"change/reserved messages are left alone"},
	},
	{
		name:  "Change breaks no reservation",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return neverBreaks{s} },
		fails: []string{"change/breaks reservations"},
	},
	{
		name:  "a broken reservation can be renewed",
		wrap:  func(s stores.Store, admin *sql.DB) stores.Store { return renewsAll{s, admin} },
		fails: []string{"change/breaks reservations"},
	},
	{
		name:  "reservations are told apart by version alone",
		wrap:  func(s stores.Store, admin *sql.DB) stores.Store { return byVersion{s, admin} },
		fails: []string{"due/a version that is another message's"},
	},
	{
		name:  "what a reservation was broken of is no suspect",
		wrap:  onChange("", "UPDATE millpond_failure SET suspect = 0"),
		fails: []string{"change/breaks reservations"},
	},
	{
		name:  "the audit does not tell what was reserved",
		wrap:  onChange("", `UPDATE millpond_audit SET "before" = 'pending'`),
		fails: []string{"change/breaks reservations"},
	},
	{
		name:  "nobody is told what is reserved",
		wrap:  func(s stores.Store, _ *sql.DB) stores.Store { return tellsNoReservation{s} },
		fails: []string{"change/reserved messages are left alone"},
	},
}

type neverBreaks struct{ stores.Store }

func (s neverBreaks) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	c.Break = false
	done, err := s.Store.Change(ctx, c)
	done.Reserved = 0
	return done, err
}

// renewsAll renews reservations whatever has become of the row.
type renewsAll struct {
	stores.Store
	admin *sql.DB
}

func (s renewsAll) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	var errs []error
	for _, r := range reserved {
		_, err := s.admin.ExecContext(ctx, "UPDATE millpond_failure SET reserved = 1, due_at = due_at + ? WHERE message_id = ? AND status = 3", d.Microseconds(), r.Key.ID)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type tellsNoReservation struct{ stores.Store }

func (s tellsNoReservation) Messages(ctx context.Context, q stores.MessageQuery) ([]stores.Message, error) {
	page, err := s.Store.Messages(ctx, q)
	for i := range page {
		page[i].Reserved = false
	}
	return page, err
}

// byVersion takes a reservation for that of whichever message has the version.
type byVersion struct {
	stores.Store
	admin *sql.DB
}

func (s byVersion) Release(ctx context.Context, reserved []stores.Retry) error {
	reserved = slices.Clone(reserved)
	for i, r := range reserved {
		number, _ := sqlstore.ParseVersion(r.State.Version)
		err := s.admin.QueryRowContext(ctx, "SELECT message_id FROM millpond_failure WHERE number = ?", number).Scan(&reserved[i].Key.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return s.Store.Release(ctx, reserved)
}
