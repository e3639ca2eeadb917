package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// ruling is what quarantine release, reject and reopen differ in.
type ruling struct {
	verb       stores.Verb
	does       string
	short      string
	long       string
	from, then stores.QuarantineStatus
	needsWhole bool
}

var release = ruling{
	verb: stores.VerbRelease, does: "release", short: "Run messages in quarantine after all, under ids of their own",
	from: stores.QuarantineHeld, then: stores.QuarantineReleased, needsWhole: true,
	long: `Run messages in quarantine after all, under ids of their own.

A released message is no duplicate of any other: if the effects of its like exist
already, they happen once more. A retry worker runs it.`,
}

var reject = ruling{
	verb: stores.VerbReject, does: "reject", short: "Leave messages in quarantine unrun for good",
	from: stores.QuarantineHeld, then: stores.QuarantineRejected,
	long: `Leave messages in quarantine unrun for good. What is kept of them stays, and
quarantine reopen takes it back.`,
}

var reopen = ruling{
	verb: stores.VerbReopen, does: "reopen", short: "Take rejections back, so that the messages are held again",
	from: stores.QuarantineRejected, then: stores.QuarantineHeld,
	long: `Take rejections back: the messages are held in quarantine again, to be released or
rejected. What was released cannot be taken back, because it may have run.`,
}

// decideRecord is the outcome of one row of quarantine release, reject and reopen.
type decideRecord struct {
	Row     int64                   `json:"row"`
	Verb    stores.Verb             `json:"verb"`
	DryRun  bool                    `json:"dry_run"`
	Done    bool                    `json:"done"` // or would be, in a dry run
	Status  stores.QuarantineStatus `json:"status,omitempty"`
	Problem string                  `json:"problem,omitempty"`
}

func (p *program) decideCommand(r ruling) *cobra.Command {
	var d decision
	var dryRun bool
	cmd := &cobra.Command{
		Use:     r.does + " ROW...",
		Short:   r.short,
		Long:    r.long,
		Example: fmt.Sprintf("  millpond quarantine %s 17 18 --reason \"checked with the producer\"", r.does),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s which rows? Give their numbers", r.does)
			}
			return nil
		},
	}
	d.bind(cmd, p)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	cmd.RunE = p.withStore(func(ctx context.Context, st store, args []string) error {
		rows, err := numbers(args)
		if err != nil {
			return err
		}
		l := p.newList("ROW", "RESULT")
		var problems []error
		for _, row := range rows {
			if ctx.Err() != nil {
				problems = append(problems, ctx.Err())
				break
			}
			err := p.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
				if dryRun {
					return r.wouldDo(ctx, st, row)
				}
				return st.Decide(ctx, stores.Decision{Verb: r.verb, RowID: row, Actor: d.actor, Reason: d.reason})
			})
			record := decideRecord{Row: row, Verb: r.verb, DryRun: dryRun, Done: err == nil}
			shown := string(r.then)
			if err != nil {
				problem := problemOf(err)
				if errors.Is(err, stores.ErrChanged) {
					record.Status, problem = p.decided(ctx, st, row)
				}
				problems = append(problems, problem)
				record.Problem = redact(explain(problem), p.url())
				shown = record.Problem
			} else {
				record.Status = r.then
				if dryRun {
					record.Status, shown = r.from, "would be "+shown
				}
			}
			l.add(record, strconv.FormatInt(row, 10), shown)
			if !aboutTheRow(err) { // the next one would fare no better
				break
			}
		}
		return errors.Join(l.close(), verdict(len(rows), l.rows, problems))
	})
	return cmd
}

// wouldDo returns what Decide would.
func (r ruling) wouldDo(ctx context.Context, st store, row int64) error {
	q, err := st.QuarantinedRow(ctx, row)
	switch {
	case err != nil:
		return err
	case q.Status != r.from:
		return stores.ErrChanged
	case r.needsWhole && q.OneWay:
		return stores.ErrNotKept
	}
	return nil
}

// decided says what was decided about a row before, which keeps it from being changed.
func (p *program) decided(ctx context.Context, st store, row int64) (stores.QuarantineStatus, error) {
	var q stores.QuarantineRow
	if err := p.ask(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		q, err = st.QuarantinedRow(ctx, row)
		return err
	}); err != nil {
		return "", problemOf(err)
	}
	if q.Status == stores.QuarantineHeld {
		return q.Status, fmt.Errorf("row %d is held: nothing was decided about it that could be taken back", row)
	}
	text := fmt.Sprintf("row %d was %s before, at %s", row, q.Status, p.exactly(q.DecidedAt))
	if q.Status == stores.QuarantineReleased {
		text += ", and runs under the id " + showID(stores.ReleasedID(row))
	}
	return q.Status, errors.New(text)
}

func aboutTheRow(err error) bool {
	return err == nil || errors.Is(err, stores.ErrNotFound) || errors.Is(err, stores.ErrChanged) || errors.Is(err, stores.ErrNotKept)
}

func problemOf(err error) error {
	switch {
	case errors.Is(err, stores.ErrNotFound):
		return nothingf("there is no such row in quarantine")
	case errors.Is(err, stores.ErrNotKept):
		return errors.New("it cannot be released: what is kept cannot be turned back into the message")
	}
	return err
}

// verdict makes one error of those of the rows.
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
		return problems[0]
	case len(problems) == asked || tried == len(problems):
		return fmt.Errorf("nothing was done: %s", strings.Join(texts, "; "))
	}
	return partlyf("%d of %d rows were not changed", asked-(tried-len(problems)), asked)
}

// notFound makes stores.ErrNotFound the answer that nothing matched.
func notFound(err error, text string) error {
	if errors.Is(err, stores.ErrNotFound) {
		return nothingf("%s", text)
	}
	return err
}
