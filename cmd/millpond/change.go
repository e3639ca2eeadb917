package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// verb is what differs between msg retry, discard and resolve.
type verb struct {
	verb             stores.Verb
	does, did, makes string // "retry", "changed", "due"
	short            string
	takes            []stores.Status // statuses that it can change
	then             stores.Status   // the status of messages for which it was done before; 0: none shows it
	done             func(io.Writer, changeRecord)
	long, example    string
	note             bool // the reason must be given
}

var retry = verb{
	verb: stores.VerbRetry, does: "retry", did: "changed", makes: "due", done: due, short: "Retry messages, with a fresh budget",
	takes: []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded},
	long: `Retry messages, with a fresh budget. A retry worker runs them.

Pending and failed messages are selected, unless --status says otherwise. A message named by
number or id is retried even if it was discarded. A message whose content is not kept waits for
its redelivery.`,
	example: `  millpond msg retry 4711 4712
  millpond msg retry --cause 5f2c0a91b7de --reason "fixed in v1.2.3"
  millpond msg retry --consumer billing/charge --class timeout --dry-run
  millpond msg retry --all --yes`,
}

var discard = verb{
	verb: stores.VerbDiscard, does: "discard", did: "discarded", makes: "discarded", then: stores.StatusDiscarded, done: discarded, short: "Discard messages: they are not retried",
	takes: []stores.Status{stores.StatusPending, stores.StatusFailed},
	long: `Discard messages: they are not retried.

Their content is kept; msg retry --status discarded undoes this.`,
	example: `  millpond msg discard 4711 --reason "test data"
  millpond msg discard --topic orders --error-contains "unknown tenant" --until 7d`,
}

var resolve = verb{
	verb: stores.VerbResolve, does: "resolve", did: "resolved", makes: "completed", done: resolved, note: true,
	short: "Complete messages whose effect was done by hand",
	takes: []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded},
	long: `Complete messages whose effect was done by hand, or has already happened.

No redelivery runs the handler again, and later messages of the order key go on. The record of
the failure is deleted; the audit keeps who decided, and the note given with --reason. The
handler's outputs are not published, and OnComplete is not called.`,
	example: `  millpond msg resolve 4711 --reason "charged by the provider: ch_3Nx, written to the ledger"
  millpond msg resolve --class unconfirmed --consumer billing/charge --until 1d --reason "all found at the provider"`,
}

// change is one call of msg retry, discard or resolve.
type change struct {
	*program
	decision
	verb   verb
	s      selection
	all    bool
	dryRun bool
	force  bool // breaks reservations
}

func (p *program) changeCommand(v verb) *cobra.Command {
	c := &change{program: p, verb: v}
	cmd := explained(&cobra.Command{
		Use:   v.does + " [NUMBER...]",
		Short: v.short,
		Long: v.long + `

Name messages by their numbers, or select them by flags, all of which must match.

These are left alone: messages that fail after the command has started, messages that are being
processed, and messages that a retry worker has reserved, because it may be running them. A
killed worker's reservations end within 20 seconds; --break ends them at once. A worker that is
still alive can then not run these messages. --break also ends leases: the handler's context
ends, and the handler cannot complete the message.

Each batch is one transaction; Ctrl-C stops after the current one. --dry-run lists the causes of
the selected messages.`,
		Example: v.example,
	}, causeColumns, exits{
		exitError:   "error, or not confirmed",
		exitNothing: "nothing matched, or nothing was left to change",
		exitPartly:  "not all were changed: some were being processed or reserved, some numbers match no message,\n     or the command was stopped; run it again to go on",
	})
	c.s.bind(cmd)
	c.decision.bind(cmd, p)
	cmd.Flags().BoolVar(&c.all, "all", false, "all pending and failed messages")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be changed, by cause, and change nothing")
	cmd.Flags().BoolVar(&c.force, "break", false, "also end reservations of retry workers and leases of handlers")
	cmd.RunE = p.withStore(c.run)
	return cmd
}

// changeRecord is the result of msg retry, discard and resolve.
type changeRecord struct {
	Verb        stores.Verb   `json:"verb"`
	DryRun      bool          `json:"dry_run"`
	Matching    int           `json:"matching"`             // how many messages matched at the start
	More        bool          `json:"more"`                 // there were more than matching, which is then a bound
	Causes      []causeRecord `json:"causes,omitempty"`     // for a dry run
	Changed     int           `json:"changed"`              // by this call
	Redelivered int           `json:"redelivered"`          // how many of changed wait for a redelivery, after msg retry
	Busy        int           `json:"busy"`                 // skipped: they are being processed
	Reserved    int           `json:"reserved"`             // skipped: a retry worker has reserved them, and --break was not given
	Missing     int           `json:"missing"`              // numbers that match no message in such a state
	Already     int           `json:"already,omitempty"`    // how many of missing already have the result
	Complete    bool          `json:"complete"`             // the command was not stopped before its end
	StoppedBy   string        `json:"stopped_by,omitempty"` // what stopped it
}

func (c *change) run(ctx context.Context, s store, args []string) error {
	f, err := c.filter(args)
	if err != nil {
		return err
	}
	if c.verb.note && c.reason == "" && !c.dryRun {
		return usagef("%s needs a note: say with --reason how it was done", c.verb.does)
	}
	if err := c.s.known(ctx, c.program, s); err != nil {
		return err
	}
	r := changeRecord{Verb: c.verb.verb, DryRun: c.dryRun}
	highest, err := c.match(ctx, s, f, &r)
	if err == nil && c.dryRun && !c.force && r.Matching > 0 {
		err = c.reserved(ctx, s, f, &r)
	}
	switch {
	case err != nil:
		return err
	case r.Matching == 0:
		return c.nothing(r, len(f.Numbers))
	case c.dryRun:
		return c.preview(ctx, s, f, r)
	}
	if !named(f) {
		if err := c.confirm(ctx, c.yes, fmt.Sprintf("%s %s", c.verb.does, messages(r.Matching, r.More))); err != nil {
			return err
		}
	}
	stopped := c.carryOut(ctx, s, f, highest, &r)
	return c.report(r, stopped)
}

// named reports whether a filter names messages one by one.
func named(f stores.Filter) bool { return len(f.Numbers) > 0 || f.ID != nil }

// filter returns what the call selects.
func (c *change) filter(args []string) (stores.Filter, error) {
	f, chosen, err := c.s.filter(args, c.now())
	switch {
	case err != nil:
		return f, err
	case len(chosen) == 0 && !c.all:
		return f, usagef("%s which messages? Give their numbers, or flags such as --cause; --all selects all that are pending or failed", c.verb.does)
	case len(chosen) > 0 && c.all:
		return f, usagef("--all takes no other selection: leave out --all, or %s", strings.Join(chosen, " and "))
	}
	if named(f) && len(f.Status) == 0 {
		f.Status = c.verb.takes
	}
	for _, status := range f.Status {
		if !slices.Contains(c.verb.takes, status) {
			return f, usagef("a %s message cannot be changed by %s", status, c.verb.does)
		}
	}
	return f, nil
}

// match counts the selected messages, and returns their highest number.
func (c *change) match(ctx context.Context, s store, f stores.Filter, r *changeRecord) (highest int64, err error) {
	limit := max(c.countLimit, len(f.Numbers))
	if err := c.ask(ctx, func(ctx context.Context) (err error) {
		r.Matching, highest, err = s.Matching(ctx, f, limit+1)
		return err
	}); err != nil {
		return 0, err
	}
	r.More, r.Matching = r.Matching > limit, min(r.Matching, limit)
	r.Missing = max(0, len(f.Numbers)-r.Matching)
	if r.Matching < max(1, len(f.Numbers)) {
		r.Already, err = c.already(ctx, s, f, limit)
	}
	return highest, err
}

// reserved counts the messages that a dry run would skip as reserved.
func (c *change) reserved(ctx context.Context, s store, f stores.Filter, r *changeRecord) error {
	f.Reserved = true
	return c.ask(ctx, func(ctx context.Context) (err error) {
		r.Reserved, _, err = s.Matching(ctx, f, r.Matching)
		return err
	})
}

// nothing returns why nothing matches.
func (c *change) nothing(r changeRecord, numbers int) error {
	switch {
	case r.Already == 0:
		return nothingf("nothing matched")
	case numbers > r.Already:
		return nothingf("already %s: %s; the other numbers match nothing", c.verb.then, messages(r.Already, false))
	case r.Already == 1:
		return nothingf("already %s", c.verb.then)
	}
	return nothingf("already %s: %s", c.verb.then, messages(r.Already, r.Already == max(c.countLimit, numbers)))
}

// already counts the messages that would match if they had not been changed before.
func (c *change) already(ctx context.Context, s store, f stores.Filter, limit int) (n int, err error) {
	if c.verb.then == 0 || len(c.s.status) > 0 { // a state was given
		return 0, nil
	}
	f.Status = []stores.Status{c.verb.then}
	err = c.ask(ctx, func(ctx context.Context) (err error) {
		n, _, err = s.Matching(ctx, f, limit)
		return err
	})
	return n, err
}

// preview shows what would be changed.
func (c *change) preview(ctx context.Context, s store, f stores.Filter, r changeRecord) error {
	causes, err := answer(ctx, c.program, func(ctx context.Context) ([]stores.Cause, error) { return s.Causes(ctx, f, c.causeLimit) })
	if err != nil {
		return err
	}
	r.Complete = true
	if c.output != outputTable {
		for _, g := range causes {
			r.Causes = append(r.Causes, causeOf(g))
		}
		return c.show(r, nil)
	}
	if err := c.listCauses(causes); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "would %s %s\n", c.verb.does, messages(r.Matching-r.Reserved, r.More))
	if r.Reserved > 0 {
		fmt.Fprintf(c.out, "would leave %s alone, %s\n", messages(r.Reserved, r.More), becauseReserved(r.Reserved))
	}
	if len(causes) == c.causeLimit {
		fmt.Fprintf(c.err, "there may be more causes than these %d\n", c.causeLimit)
	}
	return nil
}

// carryOut changes the matching messages, up to the highest number. It returns what stopped it
// early.
func (c *change) carryOut(ctx context.Context, s store, f stores.Filter, highest int64, r *changeRecord) error {
	bar := c.newProgress(c.verb.did, r.Matching, r.More)
	defer bar.end()
	request := stores.Change{Verb: c.verb.verb, Filter: f, Break: c.force, Actor: c.actor, Reason: c.reason, UpTo: highest, Limit: c.batch}
	err := c.batches(ctx, bar, func(ctx context.Context, after int64) (stores.Changed, error) {
		request.After = after
		return s.Change(ctx, request)
	}, func(done stores.Changed) {
		r.Changed += done.Changed
		r.Redelivered += done.Redelivered
		r.Busy += done.Busy
		r.Reserved += done.Reserved
	})
	r.Complete = err == nil
	return err
}

// batches changes one batch after the other, and passes each result to add. It does not interrupt a
// batch that is running.
func (p *program) batches(
	ctx context.Context, bar *progress, change func(ctx context.Context, after int64) (stores.Changed, error), add func(stores.Changed),
) error {
	for changed, after := 0, int64(0); ; {
		bar.show(changed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		done, err := answer(context.WithoutCancel(ctx), p, func(ctx context.Context) (stores.Changed, error) { return change(ctx, after) })
		if err != nil {
			return err
		}
		if add(done); done.Done {
			return nil
		}
		if done.Next <= after {
			return fmt.Errorf("the store makes no progress after message %d", after)
		}
		changed, after = changed+done.Changed, done.Next
	}
}

// becauseReserved returns why messages were skipped.
func becauseReserved(n int) string {
	them := "them"
	if n == 1 {
		them = "it"
	}
	return fmt.Sprintf("because a retry worker has reserved %[1]s and may be running %[1]s: --break takes %[1]s from the worker", them)
}

// report reports the result.
func (c *change) report(r changeRecord, stopped error) error {
	if stopped != nil {
		r.StoppedBy = redact(explain(stopped), c.url())
	}
	if c.output != outputTable {
		if err := c.show(r, nil); err != nil {
			return errors.Join(err, stopped)
		}
	} else {
		c.verb.done(c.out, r)
	}
	switch {
	case stopped != nil && r.Changed == 0:
		return stopped
	case stopped != nil:
		return partlyf("stopped after %s: %s; the same command goes on from there", messages(r.Changed, false), explain(stopped))
	case r.Busy > 0 && r.Reserved > 0:
		return partlyf("%s left alone, because an attempt of each is under way, and %s, %s", messages(r.Busy, false), count(r.Reserved), becauseReserved(r.Reserved))
	case r.Reserved > 0:
		return partlyf("%s left alone, %s", messages(r.Reserved, false), becauseReserved(r.Reserved))
	case r.Busy > 0:
		return partlyf("%s left alone, because an attempt of each is under way; try those again later", messages(r.Busy, false))
	case r.Changed == 0:
		return nothingf("nothing was changed: what matches is %s already, or another operator was faster", c.verb.makes)
	case r.Missing > 0 && r.Missing == r.Already:
		return partlyf("already %s: %s", c.verb.then, messages(r.Already, false))
	case r.Missing > 0 && r.Already > 0:
		return partlyf("%s that this command can change, %s of them because it is done already", matchNothing(r.Missing), count(r.Already))
	case r.Missing > 0:
		return partlyf("%s that this command can change", matchNothing(r.Missing))
	}
	return nil
}

// matchNothing returns "1 number matches no message".
func matchNothing(n int) string {
	if n == 1 {
		return "1 number matches no message"
	}
	return plural(n, "number") + " match no message"
}

// due reports the result of msg retry, which itself runs nothing.
func due(w io.Writer, r changeRecord) {
	now := r.Changed - r.Redelivered
	switch now {
	case 0:
	case 1:
		fmt.Fprintln(w, "1 message is due now, and waits for a retry worker")
	default:
		fmt.Fprintf(w, "%s are due now, and wait for a retry worker\n", messages(now, false))
	}
	switch r.Redelivered {
	case 0:
	case 1:
		fmt.Fprintln(w, "1 message waits for the broker to deliver it again, because no content is kept")
	default:
		fmt.Fprintf(w, "%s wait for the broker to deliver them again, because no content is kept\n", messages(r.Redelivered, false))
	}
}

// discarded reports the result of msg discard.
func discarded(w io.Writer, r changeRecord) {
	if r.Changed > 0 {
		fmt.Fprintf(w, "discarded %s\n", messages(r.Changed, false))
	}
}

// resolved reports the result of msg resolve.
func resolved(w io.Writer, r changeRecord) {
	if r.Changed > 0 {
		fmt.Fprintf(w, "resolved %s: completed, and not run again\n", messages(r.Changed, false))
	}
}
