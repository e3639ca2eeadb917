package storetest

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// brokenLeases break the rules of leases.
var brokenLeases = []variant{
	{
		name: "a completion does not check the token",
		wrap: onLeases(leases{begin: func(ctx context.Context, s stores.Store, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			c.Take = currentVersion(ctx, s, c.Key, c.Fingerprint, c.Take)
			return s.Begin(ctx, c)
		}}),
		fails: []string{
			"leased/taken over when it has expired", "leased/taken over once, of many", "leased/of a parked message",
			"leased/left alone by operators, or broken",
		},
	},
	{
		name: "a record of a step does not check the token",
		wrap: onLeases(leases{step: recordsSteps(false)}),
		fails: []string{
			"leased/no step of who has lost the lease is recorded", "leased/taken over when it has expired", "leased/taken over once, of many",
		},
	},
	{
		name:  "steps are read by whoever asks",
		wrap:  onLeases(leases{open: true}),
		fails: []string{"leased/no step of who has lost the lease is recorded", "leased/steps that are on record"},
	},
	{
		name:  "a record of a step is forgotten",
		wrap:  onLeases(leases{step: recordsSteps(true)}),
		fails: []string{"leased/steps that are on record"},
	},
	{
		name: "a renewal is not guarded",
		wrap: func(s stores.Store, admin *sql.DB) stores.Store { return extendsAll{s, admin} },
		fails: []string{
			"leased/renewed by its holder alone", "leased/taken over when it has expired",
			"leased/an expired one that nobody took over completes", "leased/left alone by operators, or broken",
		},
	},
	{
		name: "a live lease is taken over",
		wrap: onLeases(leases{record: func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			f.Lapsed = false
			return s.Record(ctx, f)
		}}),
		fails: []string{"leased/taken over when it has expired"},
	},
	{
		name: "the record of a late failure is not guarded",
		wrap: onLeases(leases{record: func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
			if !f.Start {
				f.Version = currentVersion(ctx, s, f.Key, f.Fingerprint, f.Version)
			}
			return s.Record(ctx, f)
		}}),
		fails: []string{
			"leased/taken over when it has expired", "leased/taken over once, of many", "leased/of a parked message",
			"leased/left alone by operators, or broken",
		},
	},
	{
		name:  "leased by the clock of the process, which is days behind",
		wrap:  onLeases(leases{record: leasesFrom(-48 * time.Hour)}),
		fails: []string{"leased/claimed, renewed and completed", "leased/taken over when it has expired"},
	},
	{
		name:  "leased by the clock of the process, which is days ahead",
		wrap:  onLeases(leases{record: leasesFrom(48 * time.Hour)}),
		limit: 3 * time.Second,
		fails: []string{"leased/claimed, renewed and completed", "leased/an expired one that nobody took over completes"},
	},
	{
		name: "renewed by the clock of the process, which is days ahead",
		wrap: onLeases(leases{extend: func(ctx context.Context, s stores.LeaseInbox, l stores.HeldLease, d time.Duration) error {
			return s.Extend(ctx, l, d+48*time.Hour)
		}}),
		limit: 3 * time.Second,
		fails: []string{"leased/taken over when it has expired"},
	},
}

// currentVersion is that of the row, whoever has made it.
func currentVersion(ctx context.Context, s stores.Store, k stores.Key, f stores.Fingerprint, version int64) int64 {
	if version != 0 {
		if v, err := s.Look(ctx, k, f); err == nil && v.Failure.Version != 0 {
			return v.Failure.Version
		}
	}
	return version
}

func leasesFrom(offset time.Duration) func(context.Context, stores.Store, stores.Failure) (int64, error) {
	return func(ctx context.Context, s stores.Store, f stores.Failure) (int64, error) {
		if f.Start {
			f.DueIn += offset
		}
		return s.Record(ctx, f)
	}
}

// leases is a store with leases, some of whose calls are others.
type leases struct {
	stores.Store
	begin  begin
	record func(context.Context, stores.Store, stores.Failure) (int64, error)
	extend func(context.Context, stores.LeaseInbox, stores.HeldLease, time.Duration) error
	step   func(context.Context, stores.LeaseInbox, stores.HeldLease, stores.Step) error
	open   bool // steps are read by whoever asks
}

func onLeases(with leases) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store {
		with := with
		with.Store = s
		return with
	}
}

func (s leases) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	if s.begin != nil {
		return s.begin(ctx, s.Store, c)
	}
	return s.Store.Begin(ctx, c)
}

func (s leases) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if s.record != nil {
		return s.record(ctx, s.Store, f)
	}
	return s.Store.Record(ctx, f)
}

func (s leases) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	own := s.Store.(stores.LeaseInbox)
	if s.extend != nil {
		return s.extend(ctx, own, l, d)
	}
	return own.Extend(ctx, l, d)
}

func (s leases) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	own := s.Store.(stores.LeaseInbox)
	if s.step != nil {
		return s.step(ctx, own, l, step)
	}
	return own.RecordStep(ctx, l, step)
}

func (s leases) Steps(ctx context.Context, l stores.HeldLease) ([]stores.Step, error) {
	steps, err := s.Store.(stores.LeaseInbox).Steps(ctx, l)
	if s.open && errors.Is(err, stores.ErrChanged) {
		err = nil
	}
	return steps, err
}

// recordsSteps records steps of whoever asks, or none.
func recordsSteps(guarded bool) func(context.Context, stores.LeaseInbox, stores.HeldLease, stores.Step) error {
	return func(ctx context.Context, s stores.LeaseInbox, l stores.HeldLease, step stores.Step) error {
		if guarded {
			return nil
		}
		if v, err := s.(stores.Failures).Look(ctx, l.Key, stores.Fingerprint{}); err == nil && v.Failure.Version != 0 {
			l.Version = v.Failure.Version
			if m, err := s.(stores.Inspector).Find(ctx, l.Key); err == nil {
				l.Holder = m.Holder
			}
		}
		return s.RecordStep(ctx, l, step)
	}
}

// extendsAll renews leases whoever asks, and whatever has become of them.
type extendsAll struct {
	stores.Store
	admin *sql.DB
}

func (s extendsAll) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	return s.Store.(stores.LeaseInbox).RecordStep(ctx, l, step)
}

func (s extendsAll) Steps(ctx context.Context, l stores.HeldLease) ([]stores.Step, error) {
	return s.Store.(stores.LeaseInbox).Steps(ctx, l)
}

func (s extendsAll) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	_, err := s.admin.ExecContext(ctx, "UPDATE millpond_failure SET due_at = due_at + ? WHERE message_id = ?", d.Microseconds(), l.Key.ID)
	return err
}
