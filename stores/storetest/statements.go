package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// statement is SQL text that a handler sends, step by step, hiding all errors.
type statement struct {
	steps   []string
	want    expectation
	parks   bool // leaves a transaction behind that only an operator can end
	reopens bool // leaves another transaction open than the one that holds the claim
	quoting bool // a trap for scanners of SQL text
}

// statements are sent in every way the harness has. Text that a database does not
// know is an error like another, so they are the same for all.
var statements = []statement{
	{want: mustFail, steps: []string{"COMMIT"}},
	{want: mustFail, steps: []string{"commit;"}},
	{want: mustFail, steps: []string{"  /* tidy up */ CoMmIt"}},
	{want: mustFail, steps: []string{"-- tidy up\nCOMMIT"}},
	{reopens: true, want: mustFail, steps: []string{"COMMIT", "BEGIN"}},
	{want: mustFail, steps: []string{"ROLLBACK"}},
	{want: mustFail, steps: []string{"\n\trollback -- done"}},
	{reopens: true, want: mustFail, steps: []string{"ROLLBACK", "BEGIN"}},
	{reopens: true, want: mustFail, steps: []string{"ROLLBACK TRANSACTION", "BEGIN TRANSACTION"}},
	{reopens: true, want: mayCommit, steps: []string{"ROLLBACK; BEGIN"}},
	{reopens: true, want: mayCommit, steps: []string{"COMMIT; BEGIN"}},
	{want: mayCommit, steps: []string{"SELECT 1; COMMIT"}},
	{want: mayCommit, steps: []string{";COMMIT"}},
	{want: mayCommit, steps: []string{"END"}},
	{want: mayCommit, steps: []string{"ABORT"}},
	{reopens: true, want: mayCommit, steps: []string{"COMMIT AND CHAIN"}},
	{reopens: true, want: mayCommit, steps: []string{"ROLLBACK AND CHAIN"}},
	{want: mayCommit, steps: []string{"PREPARE TRANSACTION 'storetest'"}, parks: true},
	{want: mayCommit, steps: []string{"BEGIN"}},
	{want: mayCommit, steps: []string{"START TRANSACTION"}},
	{want: mayCommit, steps: []string{"DO $$ BEGIN COMMIT; END $$"}},
	{want: mayCommit, steps: []string{"EXPLAIN ANALYZE SELECT 1", "COMMIT WORK"}},
	// Quoting that a scanner of SQL text could get wrong.
	{want: mayCommit, quoting: true, steps: []string{"/* /* */ */ COMMIT"}},
	{want: mayCommit, quoting: true, steps: []string{`SELECT E'\''; COMMIT; --'`}},
	{want: mayCommit, quoting: true, steps: []string{`SELECT 'a\'; COMMIT; --'`}},
	{want: mayCommit, quoting: true, steps: []string{`SELECT "a\"; COMMIT; --"`}},
	{reopens: true, want: mayCommit, quoting: true, steps: []string{"SELECT $$'$$; ROLLBACK; BEGIN; --'"}},
	{want: mayCommit, quoting: true, steps: []string{"SELECT $a$ $b$ $a$; COMMIT; --$b$"}},
	{want: mayCommit, quoting: true, steps: []string{"SELECT 1 /* ' */; COMMIT; --'"}},
	// A hidden error. Some databases undo only the statement, others the transaction.
	{want: mayCommit, steps: []string{takenTwice}},
	{reopens: true, want: mayCommit, steps: []string{takenTwice, "ROLLBACK; BEGIN"}},
	{want: mayCommit, steps: []string{takenTwice + "; COMMIT"}},
	{want: mustFail, steps: []string{takenTwice, "COMMIT"}},
	{want: mustFail, steps: []string{takenTwice, "ROLLBACK"}},
	{want: mayCommit, steps: []string{"INSERT OR ROLLBACK INTO " + TakenTable + " (id) VALUES ('taken')"}},
	{reopens: true, want: mayCommit, steps: []string{"INSERT OR ROLLBACK INTO " + TakenTable + " (id) VALUES ('taken')", "BEGIN"}},
	{want: mayCommit, steps: []string{"CREATE TABLE storetest_created (id INTEGER)", "DROP TABLE storetest_created"}},
	// Honest ones.
	{want: mustCommit, steps: []string{"SELECT 'COMMIT; ROLLBACK'"}},
	{want: mustCommit, steps: []string{`SELECT 1 AS "commit"`}},
	{want: mustCommit, steps: []string{"/* rollback */ SELECT 1 -- commit"}},
	{want: mustCommit, steps: []string{"SAVEPOINT storetest_a", "SAVEPOINT storetest_b", "RELEASE SAVEPOINT storetest_b", "RELEASE SAVEPOINT storetest_a"}},
	{want: mustCommit, steps: []string{"SAVEPOINT storetest_a", takenTwice, "ROLLBACK TO SAVEPOINT storetest_a"}},
	{want: mustCommit, steps: []string{"SAVEPOINT storetest_a", takenTwice, "ROLLBACK TO storetest_a", "RELEASE storetest_a"}},
}

const takenTwice = "INSERT INTO " + TakenTable + " (id) VALUES ('taken')"

func statementChecks(h *Harness) []check {
	var checks []check
	for i, way := range h.Ways {
		if way.NotSQL {
			continue
		}
		checks = append(checks, check{name: way.Name, run: func(b *bench) { b.tellStatements(way, i == 0) }})
	}
	return checks
}

// tellStatements sends all statements in one way; all is false for the later ways,
// which share what reads the text.
func (b *bench) tellStatements(way Way, all bool) {
	store := b.open()
	in := b.service(store)
	for i, st := range statements {
		if b.unnoticed(store, st) {
			continue
		}
		if st.parks && way.Unpreventable != "" || st.quoting && !all {
			continue // a parked key stays in flight, which nobody can help
		}
		if i%8 == 7 {
			b.clear()
		}
		name := fmt.Sprintf("%d %q", i, strings.Join(st.steps, " | "))
		m := misconduct{want: st.want, act: sends(way, st.steps)}
		if st.want == mustFail {
			m.errs = []error{stores.ErrTxManaged, stores.ErrTxEnded, stores.ErrTxAborted}
		}
		if way.Unpreventable != "" {
			m.unpreventable = true
			m.errs = nil
		}
		m.end = hides
		if all || st.want != mayCommit {
			b.story(name, m).throughStore(store)
		}
		for _, end := range []ending{hides, fails, blows} {
			if end == blows && !m.unpreventable {
				continue // nothing was committed, as with an error
			}
			m.end = end
			b.story(name+", "+string(end), m).throughInbox(in)
		}
	}
	b.healthy(store)
}

// unnoticed reports whether the store says that it cannot notice the statement. That is
// logged.
func (b *bench) unnoticed(store stores.Store, st statement) bool {
	b.tb.Helper()
	if !st.reopens || !store.Capabilities().CommitUnproven {
		return false
	}
	b.tb.Logf("not checked: the store says that its commits are unproven: %q", st.steps)
	return true
}

func sends(way Way, steps []string) func(context.Context, *message.Message) error {
	return func(ctx context.Context, _ *message.Message) error {
		var errs []error
		for _, step := range steps {
			if err := way.Exec(ctx, step); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", step, err))
			}
		}
		return errors.Join(errs...)
	}
}

func sorted(checks []check) []check {
	slices.SortFunc(checks, func(a, b check) int { return strings.Compare(a.name, b.name) })
	return checks
}
