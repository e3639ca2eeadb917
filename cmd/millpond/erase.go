package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/middleware/retention"
)

// erasedRecord is a line of erase.
type erasedRecord struct {
	Place    string `json:"place"`
	Erased   int    `json:"erased"` // or would be, in a dry run
	Waiting  int    `json:"waiting"`
	Busy     int    `json:"busy"`
	DryRun   bool   `json:"dry_run"`
	PassedBy string `json:"passed_by,omitempty"`
}

var erasedColumns = columns{
	{"PLACE", "failed messages, the quarantine, or a state of the outbox"},
	{"ERASED", "how many were erased, or would be with --dry-run"},
	{"WAITING", "left alone because they still wait; --unfinished erases them too"},
	{"BUSY", "left alone because they are being processed, or were changed meanwhile"},
	{"PASSED BY", "why this place was skipped"},
}

// eraseCall is one call of erase.
type eraseCall struct {
	*program
	decision
	s selection
	e retention.Erasure
}

func (p *program) eraseCommand() *cobra.Command {
	c := &eraseCall{program: p}
	cmd := explained(&cobra.Command{
		Use:   "erase",
		Short: "Erase the content of messages for good: payload, metadata, errors",
		Long: `Erase the content of messages for good: payload, metadata, errors, history, order key. This
covers failed messages, the quarantine, the outbox, its history and its dead letters. Completed
messages have no such content.

Ids and fingerprints are kept, so that no redelivery runs an erased message; outputs are deleted.
Unfinished work is left alone and counted: pending messages, messages held in quarantine, and
outputs that are not published. With --unfinished it is erased too, and is never done. The audit
has who erased what. Published copies, backups and archives are not covered: docs/erasing.md.

Select messages by flags, all of which must match. If the command is stopped, run it again.`,
		Example: `  millpond erase --id u:0190163d-8694-739b-aea5-966c26f8ad91 --dry-run
  millpond erase --order-key customer-4711 --unfinished --reason "request 17"
  millpond erase --consumer billing/charge --topic orders --until 90d --yes -o json`,
		Args: noArguments,
	}, erasedColumns, exits{
		exitError:   "error, or not confirmed; run the command again to go on",
		exitNothing: "nothing matched, or all was erased before",
		exitPartly:  "some were left alone because they wait or are being processed",
	})
	f := cmd.Flags()
	c.s.bindConsumer(cmd, "of this `consumer`: service/handler, or all of a service")
	c.s.bindID(cmd)
	f.StringVar(&c.s.orderKey, "order-key", "", "with this order `key`")
	f.StringVar(&c.s.topic, "topic", "", "from or for this `topic`")
	f.StringVar(&c.s.errorContains, "error-contains", "", "whose last error contains this `text`, byte by byte")
	f.StringVar(&c.s.since, "since", "", "failed, stored or published at this `time` or later: an age such as 2h or 7d, or RFC 3339")
	f.StringVar(&c.s.until, "until", "", "failed, stored or published at this `time` or earlier")
	f.BoolVar(&c.e.Unfinished, "unfinished", false, "also erase unfinished work, which is then never run or published")
	f.BoolVar(&c.e.DryRun, "dry-run", false, "show what would be erased, and erase nothing")
	c.decision.bind(cmd, p)
	cmd.RunE = p.withStore(c.run)
	return cmd
}

// erasure returns the selection of the call.
func (c *eraseCall) erasure() (retention.Erasure, error) {
	f, chosen, err := c.s.filter(nil, c.now())
	if err != nil {
		return c.e, err
	}
	if len(chosen) == 0 {
		return c.e, usagef("erase which messages? Give flags such as --id or --order-key")
	}
	e := c.e
	e.Service, e.Handler, e.ID, e.OrderKey, e.Topic = f.Service, f.Handler, f.ID, f.OrderKey, f.Topic
	e.ErrorContains, e.Since, e.Until = f.ErrorContains, f.Since, f.Until
	if uuid, ok := strings.CutPrefix(unquoteID(c.s.id), "u:"); ok {
		e.OutputID = uuid
	}
	e.Actor, e.Reason = c.actor, c.reason
	return e, nil
}

func (c *eraseCall) run(ctx context.Context, s store, _ []string) error {
	e, err := c.erasure()
	if err != nil {
		return err
	}
	if err := c.s.known(ctx, c.program, s); err != nil {
		return err
	}
	dry := e
	dry.DryRun = true
	found, err := retention.Erase(ctx, s, dry)
	if err != nil || e.DryRun {
		return c.report(found, err)
	}
	would := sumOf(found)
	if would.Erased == 0 {
		return c.report(found, nil)
	}
	if err := c.confirm(ctx, c.yes, fmt.Sprintf("erase for good what is kept of %s", messages(would.Erased, false))); err != nil {
		return err
	}
	bar := c.newProgress("erased", would.Erased, false)
	e.Progress = bar.show
	found, err = retention.Erase(ctx, s, e)
	bar.end()
	return c.report(found, err)
}

func sumOf(found []retention.Erased) (sum retention.Erased) {
	for _, f := range found {
		sum.Erased, sum.Waiting, sum.Busy = sum.Erased+f.Erased, sum.Waiting+f.Waiting, sum.Busy+f.Busy
	}
	return sum
}

func (c *eraseCall) report(found []retention.Erased, stopped error) error {
	l := c.newList(erasedColumns)
	for _, f := range found {
		l.add(erasedRecord{f.Place, f.Erased, f.Waiting, f.Busy, c.e.DryRun, f.PassedBy},
			f.Place, count(f.Erased), count(f.Waiting), count(f.Busy), f.PassedBy)
	}
	if err := errors.Join(l.close(), stopped); err != nil {
		return err
	}
	switch sum := sumOf(found); {
	case sum.Waiting > 0:
		return partlyf("%s left alone, because they still wait: --unfinished erases them, too, and their work is never done", messages(sum.Waiting, false))
	case sum.Busy > 0:
		return partlyf("%s left alone, because they are being processed, or were changed meanwhile: try again later", messages(sum.Busy, false))
	case sum.Erased == 0:
		return nothingf("nothing matched that is not erased already")
	}
	return nil
}
