package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// outputVerb is what differs between outbox retry, discard and replay.
type outputVerb struct {
	verb          stores.Verb
	does, did     string
	short, long   string
	example, done string
	states        []string // the first is the default
	choose        string   // which flags select
}

var (
	retryOutputs = outputVerb{
		verb: stores.VerbRetryOutput, does: "retry", did: "retried", done: "%s to be published again\n",
		states: []string{string(stores.OutputFailed)},
		choose: "flags such as --destination; --all selects all dead letters",
		short:  "Publish dead letters after all, with a fresh budget",
		long: `Publish dead letters after all, with a fresh budget. A relay publishes them.

A dead letter that blocked its order key is published before the messages behind it.`,
		example: `  millpond outbox retry 4711
  millpond outbox retry --destination kafka-eu --error-contains "unknown topic" --reason "created"
  millpond outbox retry --all --dry-run`,
	}
	discardOutputs = outputVerb{
		verb: stores.VerbDiscardOutput, does: "discard", did: "discarded", done: "%s discarded\n",
		states: []string{string(stores.OutputFailed), string(stores.OutputPending)},
		choose: "flags such as --destination; --all selects all in the state",
		short:  "Delete messages of the outbox: they are not published",
		long: `Delete messages of the outbox: they are not published. Only the audit entry remains.

Dead letters are selected, unless --state says otherwise. A relay that is just publishing a message
may still do so. Messages that waited behind a dead letter of their order key go on.`,
		example: `  millpond outbox discard 4711 --reason "test data"
  millpond outbox discard --state pending --destination gone --all`,
	}
	replayOutputs = outputVerb{
		verb: stores.VerbReplayOutput, does: "replay", did: "replayed", done: "%s to be published again\n",
		states: []string{string(stores.OutputPublished)},
		choose: "--since",
		short:  "Publish messages from the history again",
		long: `Publish messages from the history again, with the same ids, in the order in which they
were written. The copies are at the end of the outbox, behind messages that were written since.

Copies made by earlier replays are left out if their sources are selected, too. If the source is
older than --since, all copies published since then are selected. Numbers select copies as well.

An inbox that remembers the ids treats them as duplicates.`,
		example: `  millpond outbox replay --since 2h --destination kafka-eu --reason "topic was lost"
  millpond outbox replay --since 2026-10-01T08:00:00Z --until 2026-10-01T09:00:00Z --dry-run`,
	}
)

// outputChange is one call of outbox retry, discard or replay.
type outputChange struct {
	*program
	decision
	verb   outputVerb
	s      outputSelection
	all    bool
	dryRun bool
}

func (p *program) outputChangeCommand(v outputVerb) *cobra.Command {
	c := &outputChange{program: p, verb: v, s: outputSelection{state: v.states[0]}}
	cmd := explained(&cobra.Command{
		Use:   v.does + " [NUMBER...]",
		Short: v.short,
		Long: v.long + `

Name messages by their numbers, or select them by flags, all of which must match. Messages written
after the start of the command are left alone. Each batch is one transaction; Ctrl-C stops after
the current one. --dry-run lists the selected messages.`,
		Example: v.example,
	}, outputColumns, exits{
		exitError:   "error, or not confirmed",
		exitNothing: "nothing matched",
		exitPartly:  "not all were changed: some numbers match no message, some messages were gone, or the command was stopped",
	})
	var states []string
	if len(v.states) > 1 {
		states = v.states
	}
	c.s.bind(cmd, states...)
	c.decision.bind(cmd, p)
	if v.verb != stores.VerbReplayOutput {
		cmd.Flags().BoolVar(&c.all, "all", false, "all messages in the state")
	}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be changed, and change nothing")
	cmd.RunE = p.withOutbox(func(ctx context.Context, s stores.OutboxInspector, args []string) error {
		f, err := c.filter(cmd, args)
		if err != nil {
			return err
		}
		return c.run(ctx, s, f)
	})
	return cmd
}

func (c *outputChange) filter(cmd *cobra.Command, args []string) (stores.OutputFilter, error) {
	f, chosen, err := c.s.filter(cmd, args, c.now())
	f.WithoutCopies = c.verb.verb == stores.VerbReplayOutput && len(f.Numbers) == 0
	switch {
	case err != nil:
		return f, err
	case !slices.Contains(c.verb.states, c.s.state):
		return f, usagef("a %s message cannot be changed by %s", c.s.state, c.verb.does)
	case c.verb.verb == stores.VerbReplayOutput && len(f.Numbers) == 0 && f.Since.IsZero(), len(chosen) == 0 && !c.all:
		return f, usagef("%s which messages? Give their numbers, or %s", c.verb.does, c.verb.choose)
	case len(chosen) > 0 && c.all:
		return f, usagef("--all takes no other selection: leave out --all, or %s", strings.Join(chosen, " and "))
	}
	return f, nil
}

// outputChangeRecord is the result of outbox retry, discard and replay.
type outputChangeRecord struct {
	Verb      stores.Verb    `json:"verb"`
	DryRun    bool           `json:"dry_run"`
	Matching  int            `json:"matching"`           // how many messages matched at the start
	More      bool           `json:"more"`               // there were more than matching, which is then a bound
	Messages  []outputRecord `json:"messages,omitempty"` // in a dry run, the latest ones
	Changed   int            `json:"changed"`
	Gone      int            `json:"gone"`    // gone before their turn
	Missing   int            `json:"missing"` // numbers that match no message in this state
	Complete  bool           `json:"complete"`
	StoppedBy string         `json:"stopped_by,omitempty"`
}

func (c *outputChange) run(ctx context.Context, s stores.OutboxInspector, f stores.OutputFilter) error {
	r := outputChangeRecord{Verb: c.verb.verb, DryRun: c.dryRun}
	limit := max(c.countLimit, len(f.Numbers))
	var highest int64
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		r.Matching, highest, err = s.MatchingOutputs(ctx, f, limit+1)
		return err
	})
	r.More, r.Matching = r.Matching > limit, min(r.Matching, limit)
	r.Missing = max(0, len(f.Numbers)-r.Matching)
	switch {
	case err != nil:
		return err
	case r.Matching == 0:
		return nothingf("nothing matched")
	case c.dryRun:
		return c.preview(ctx, s, f, r)
	}
	if len(f.Numbers) == 0 && f.ID == "" {
		if err := c.confirm(ctx, c.yes, fmt.Sprintf("%s %s", c.verb.does, messages(r.Matching, r.More))); err != nil {
			return err
		}
	}
	stopped := c.carryOut(ctx, s, f, highest, &r)
	return c.report(r, stopped)
}

// previewed is how many messages a dry run lists.
const previewed = 50

func (c *outputChange) preview(ctx context.Context, s stores.OutboxInspector, f stores.OutputFilter, r outputChangeRecord) error {
	rows, err := answer(ctx, c.program, func(ctx context.Context) ([]stores.OutputRow, error) {
		return s.Outputs(ctx, stores.OutputQuery{OutputFilter: f, Limit: previewed})
	})
	if err != nil {
		return err
	}
	r.Complete = true
	if c.output != outputTable {
		for _, o := range rows {
			r.Messages = append(r.Messages, outputOf(o))
		}
		return c.show(r, nil)
	}
	l := c.newList(outputColumns)
	for _, o := range rows {
		l.add(outputOf(o), c.outputCells(o)...)
	}
	if err := l.close(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "would %s %s\n", c.verb.does, messages(r.Matching, r.More))
	return nil
}

// carryOut changes the matching outputs, up to the highest number. It returns what stopped it
// early.
func (c *outputChange) carryOut(ctx context.Context, s stores.OutboxInspector, f stores.OutputFilter, highest int64, r *outputChangeRecord) error {
	bar := c.newProgress(c.verb.did, r.Matching, r.More)
	defer bar.end()
	request := stores.OutputChange{Verb: c.verb.verb, Filter: f, Actor: c.actor, Reason: c.reason, UpTo: highest, Limit: c.batch}
	err := c.batches(ctx, bar, func(ctx context.Context, after int64) (stores.Changed, error) {
		request.After = after
		return s.ChangeOutputs(ctx, request)
	}, func(done stores.Changed) {
		r.Changed += done.Changed
		r.Gone += done.Busy
	})
	r.Complete = err == nil
	return err
}

func (c *outputChange) report(r outputChangeRecord, stopped error) error {
	if stopped != nil {
		r.StoppedBy = redact(explain(stopped), c.url())
	}
	if c.output != outputTable {
		if err := c.show(r, nil); err != nil {
			return errors.Join(err, stopped)
		}
	} else if r.Changed > 0 {
		fmt.Fprintf(c.out, c.verb.done, messages(r.Changed, false))
	}
	switch {
	case stopped != nil && r.Changed == 0:
		return stopped
	case stopped != nil:
		return partlyf("stopped after %s: %s", messages(r.Changed, false), explain(stopped))
	case r.Changed == 0:
		return nothingf("nothing was changed: a relay or another operator was faster")
	case r.Gone > 0:
		return partlyf("%s gone when the turn came", messages(r.Gone, false))
	case r.Missing > 0:
		return partlyf("%s that this command can change", matchNothing(r.Missing))
	}
	return nil
}
