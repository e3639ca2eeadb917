package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Examining is one examination of a server.
type Examining struct {
	stores.Examination

	Findings []stores.Finding
	t        *Tables
}

// Look is one check.
type Look struct {
	Check string
	At    func(ctx context.Context, x *Examining, add Adder) error
}

// Adder adds a check's finding.
type Adder func(severity stores.Severity, what, why, fix string)

// Looks are the checks of one database, besides those of all.
type Looks struct {
	Server []Look // needs no tables
	Tables []Look
	Shape  func(ctx context.Context) (Shape, error) // of the existing tables
}

// Examine checks a server and its tables. A failed check does not stop the others.
func (t *Tables) Examine(ctx context.Context, e stores.Examination, looks Looks) ([]stores.Finding, error) {
	x := &Examining{Examination: e, t: t}
	state, err := t.state(ctx)
	switch {
	case errors.Is(err, ErrUnusable):
		x.add("server")(stores.SeverityError, err.Error(), "the store refuses to run on it", "")
		return x.Findings, nil
	case err != nil:
		return nil, err
	}
	usable := x.schema(ctx, state)
	for _, look := range looks.Server {
		x.look(ctx, look)
	}
	if usable {
		for _, look := range append(looks.Tables, Look{"schema", looks.drift}, Look{"clock", clock}, Look{"overdue", overdue},
			Look{"waiting", waiting}, Look{"outbox", outboxBacklog}, Look{"numbers", numbers}) {
			x.look(ctx, look)
		}
	}
	return x.Findings, context.Cause(ctx)
}

func (x *Examining) add(check string) Adder {
	return func(severity stores.Severity, what, why, fix string) {
		x.Findings = append(x.Findings, stores.Finding{Check: check, Severity: severity, What: what, Why: why, Fix: fix})
	}
}

func (x *Examining) look(ctx context.Context, l Look) {
	add := x.add(l.Check)
	if err := l.At(ctx, x, add); err != nil && ctx.Err() == nil {
		add(stores.SeverityNote, fmt.Sprintf("this could not be checked: %v", err), "whether it weakens a promise is unknown", "use an account that may read it")
	}
}

// schema reports whether this program can use the tables.
func (x *Examining) schema(ctx context.Context, state SchemaState) bool {
	err := x.t.Check(state)
	if err == nil {
		err = x.t.learn(ctx, false)
	}
	add := x.add("schema")
	switch {
	case errors.Is(err, stores.ErrSchemaNewer):
		add(stores.SeverityError, err.Error(), "a process of this version refuses to start", "use a version of millpond that knows the newer steps")
	case errors.Is(err, stores.ErrNotMigrated):
		add(stores.SeverityError, err.Error(), "no message can be handled", "millpond migrate up")
	case err != nil:
		add(stores.SeverityError, err.Error(), "no message can be handled", "")
	}
	return err == nil
}

func (l Looks) drift(ctx context.Context, x *Examining, add Adder) error {
	is, err := l.Shape(ctx)
	if err != nil {
		return err
	}
	missing, more := ShapeOf(x.t.migrations).Drift(is)
	if len(missing) > 0 {
		add(stores.SeverityWarning, "the tables lack "+strings.Join(missing, ", "), "somebody has changed what the migrations made: statements fail, or read whole tables",
			"take their statements from millpond migrate sql")
	}
	if len(more) > 0 {
		add(stores.SeverityWarning, "the tables also have "+strings.Join(more, ", "), "no migration made them: a later one may need the name, and a column that requires a value stops every INSERT",
			"ALTER TABLE … DROP COLUMN")
	}
	return nil
}

// numbers reads the only row of a query; NULL is nil.
func (x *Examining) numbers(ctx context.Context, text string, into ...any) error {
	_, err := First(ctx, x.t.db, Statement{Text: x.t.sql(text)}, into...)
	return err
}

func clock(ctx context.Context, x *Examining, add Adder) error {
	var micros int64
	before := x.Now()
	if err := x.numbers(ctx, `SELECT {us}{now}{/us}`, &micros); err != nil {
		return err
	}
	FindClocks(add, before, x.Now(), time.UnixMicro(micros))
	return nil
}

// oldest returns how many rows there are, and the age of the oldest.
func (x *Examining) oldest(ctx context.Context, column, from string) (w Waits, err error) {
	var at *int64
	var now int64
	err = x.numbers(ctx, `SELECT count(*), {us}min(`+column+`){/us}, {us}{now}{/us} FROM {schema.}{prefix}`+from, &w.N, &at, &now)
	if at != nil {
		w.Age = (time.Duration(now-*at) * time.Microsecond).Round(time.Second)
	}
	return w, err
}

func overdue(ctx context.Context, x *Examining, add Adder) error {
	due, err := x.oldest(ctx, "due_at", "failure WHERE status = 3 AND placement = 1 AND due_at <= {now}")
	if err == nil {
		FindOverdue(add, due, x.Overdue)
	}
	return err
}

func waiting(ctx context.Context, x *Examining, add Adder) error {
	for _, k := range []struct{ status, column, from string }{
		{stores.StatusPending.String(), "first_at", "failure WHERE status = 3"},
		{stores.StatusFailed.String(), "first_at", "failure WHERE status = 4"},
		{Quarantined, "first_at", "quarantine WHERE status = 'held'"},
	} {
		w, err := x.oldest(ctx, k.column, k.from)
		if err != nil {
			return err
		}
		FindWaiting(add, k.status, w)
	}
	return nil
}

func outboxBacklog(ctx context.Context, x *Examining, add Adder) error {
	pending, err := x.oldest(ctx, "created_at", "outbox")
	if err != nil {
		return err
	}
	var owned int64
	if err := x.numbers(ctx, `SELECT count(*) FROM {schema.}{prefix}lease WHERE name = 'outbox' AND {until} > {now}`, &owned); err != nil {
		return err
	}
	failed, err := x.oldest(ctx, "failed_at", "outbox_failed")
	if err == nil {
		FindOutbox(add, pending, x.Overdue, owned, failed)
	}
	return err
}

// numbers compares the numbers drawn so far with the largest possible ones. A failure's number
// shares 63 bits with its revision.
func numbers(ctx context.Context, x *Examining, add Adder) error {
	for _, s := range []struct {
		table, column string
		bits          int
	}{{"failure", "number", 43}, {"quarantine", "id", 63}, {"audit", "id", 63}, {"outbox", "id", 63}} {
		var highest int64
		if err := x.numbers(ctx, `SELECT coalesce(max(`+s.column+`), 0) FROM {schema.}{prefix}`+s.table, &highest); err != nil {
			return err
		}
		if highest>>(s.bits-1) > 0 {
			add(stores.SeverityWarning, fmt.Sprintf("%s.%s has reached %d, more than half of what fits", s.table, s.column, highest),
				"when none is left, nothing can be recorded there", "find out what draws so many; the next version of the table must count anew")
		}
	}
	return nil
}
