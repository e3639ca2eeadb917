package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// ruling is what differs between quarantine release, reject and reopen.
type ruling struct {
	sqlstore.Ruling
	verb  stores.Verb
	short string
	long  string
}

func newRuling(verb stores.Verb, short, long string) ruling {
	r, _ := sqlstore.RulingOf(verb)
	return ruling{Ruling: r, verb: verb, short: short, long: long}
}

var release = newRuling(stores.VerbRelease, "Run messages in quarantine, each under a new id", `Run messages in quarantine, each under a new id. A retry worker runs them.

Because of its new id a released message is never a duplicate. If it is a copy of a completed
message, the effects happen a second time.`)

var reject = newRuling(stores.VerbReject, "Reject messages in quarantine: they are never run", `Reject messages in quarantine: they are never run. Their content is kept, and quarantine reopen
undoes the rejection.`)

var reopen = newRuling(stores.VerbReopen, "Undo rejections, so that the messages are held again", `Undo rejections: the messages are held in quarantine again, to be released or
rejected. A release cannot be undone, because the message may have run.`)

// decideRecord is the result of quarantine release, reject and reopen for one row.
type decideRecord struct {
	Row     int64                   `json:"row"`
	Verb    stores.Verb             `json:"verb"`
	DryRun  bool                    `json:"dry_run"`
	Done    bool                    `json:"done"` // or would be, in a dry run
	Status  stores.QuarantineStatus `json:"status,omitempty"`
	Problem string                  `json:"problem,omitempty"`
}

var decideColumns = columns{rowColumn, {"RESULT", "the status after the decision, or why the row was not changed"}}

// decideCall is one call of quarantine release, reject or reopen.
type decideCall struct {
	*program
	decision
	ruling ruling
	dryRun bool
}

func (p *program) decideCommand(r ruling) *cobra.Command {
	c := &decideCall{program: p, ruling: r}
	cmd := explained(&cobra.Command{
		Use:     string(r.verb) + " ROW...",
		Short:   r.short,
		Long:    r.long,
		Example: fmt.Sprintf("  millpond quarantine %s 17 18 --reason \"checked with the producer\"", r.verb),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s which rows? Give their numbers", r.verb)
			}
			return nil
		},
	}, decideColumns, exits{
		exitError:   "error, or no row was changed",
		exitNothing: "there are no such rows, or all were decided before",
		exitPartly:  "some of the rows were not changed",
	})
	c.decision.bind(cmd, p)
	cmd.Flags().Lookup("yes").Usage = "accepted without effect: the command never asks, because rows are named one by one"
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "say what would be done, and change nothing")
	cmd.RunE = p.withStore(c.run)
	return cmd
}

func (c *decideCall) run(ctx context.Context, st store, args []string) error {
	rows, err := numbers(args)
	if err != nil {
		return err
	}
	l := c.newList(decideColumns)
	var problems []error
	for _, row := range rows {
		if ctx.Err() != nil {
			problems = append(problems, ctx.Err())
			break
		}
		err := c.decide(ctx, st, row)
		record, shown, problem := c.result(ctx, st, row, err)
		if problem != nil {
			problems = append(problems, problem)
		}
		l.add(record, strconv.FormatInt(row, 10), shown)
		if !aboutTheRow(err) { // the next row would get the same error
			break
		}
	}
	return errors.Join(l.close(), verdict(len(rows), l.rows, problems))
}

// decide decides about one row. It is not interrupted.
func (c *decideCall) decide(ctx context.Context, st store, row int64) error {
	return c.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
		if c.dryRun {
			return c.ruling.wouldDo(ctx, st, row)
		}
		return st.Decide(ctx, stores.Decision{Verb: c.ruling.verb, RowID: row, Actor: c.actor, Reason: c.reason})
	})
}

// result returns a row's result, for programs and for people, and the error.
func (c *decideCall) result(ctx context.Context, st store, row int64, err error) (record decideRecord, shown string, problem error) {
	record = decideRecord{Row: row, Verb: c.ruling.verb, DryRun: c.dryRun, Done: err == nil, Status: c.ruling.Then}
	switch {
	case err == nil && c.dryRun:
		record.Status = c.ruling.From
		return record, "would be " + string(c.ruling.Then), nil
	case err == nil:
		return record, string(c.ruling.Then), nil
	}
	record.Status, problem = "", problemOf(err)
	if errors.Is(err, stores.ErrChanged) {
		record.Status, problem = c.decided(ctx, st, row)
	}
	record.Problem = redact(explain(problem), c.url())
	return record, record.Problem, problem
}

// wouldDo returns the error that Decide would return.
func (r ruling) wouldDo(ctx context.Context, st store, row int64) error {
	q, err := st.QuarantinedRow(ctx, row)
	if err != nil {
		return err
	}
	return r.Check(q.Status, q.OneWay)
}

// decided returns the earlier decision about a row, which prevents the change.
func (p *program) decided(ctx context.Context, st store, row int64) (stores.QuarantineStatus, error) {
	q, err := answer(context.WithoutCancel(ctx), p, func(ctx context.Context) (stores.QuarantineRow, error) { return st.QuarantinedRow(ctx, row) })
	if err != nil {
		return "", problemOf(err)
	}
	if q.Status == stores.QuarantineHeld {
		return q.Status, nothingf("row %d is held: there is no rejection to undo", row)
	}
	text := fmt.Sprintf("row %d was %s before, at %s", row, q.Status, p.exactly(q.DecidedAt))
	if q.Status == stores.QuarantineReleased {
		text += ", and runs under the id " + showID(stores.ReleasedID(row))
	}
	return q.Status, nothingf("%s", text)
}

func aboutTheRow(err error) bool {
	return err == nil || errors.Is(err, stores.ErrNotFound) || errors.Is(err, stores.ErrChanged) || errors.Is(err, stores.ErrNotKept)
}

func problemOf(err error) error {
	switch {
	case errors.Is(err, stores.ErrNotFound):
		return nothingf("there is no such row in quarantine")
	case errors.Is(err, stores.ErrNotKept):
		return errors.New("it cannot be released: its content cannot be restored")
	}
	return err
}

// verdict combines the errors of the rows.
func verdict(asked, tried int, problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	var texts []string
	nothing := true
	for _, problem := range problems {
		nothing = nothing && exitCode(problem, true) == exitNothing
		texts = append(texts, explain(problem))
	}
	switch {
	case asked == 1:
		return problems[0]
	case nothing && len(problems) == asked:
		return nothingf("nothing was done: %s", strings.Join(slices.Compact(texts), "; "))
	case len(problems) == asked || tried == len(problems):
		return fmt.Errorf("nothing was done: %s", strings.Join(texts, "; "))
	}
	return partlyf("%d of %d rows were not changed", asked-(tried-len(problems)), asked)
}

// notFound maps stores.ErrNotFound to the error that nothing matched.
func notFound(err error, text string) error {
	if errors.Is(err, stores.ErrNotFound) {
		return nothingf("%s", text)
	}
	return err
}
