package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// causeRecord is a cause of cause ls and of a dry run.
type causeRecord struct {
	Cause text `json:"cause"`
	consumerRecord
	Class     text      `json:"class"`
	Error     text      `json:"error"` // the error of one of its messages
	Pending   int       `json:"pending"`
	Failed    int       `json:"failed"`
	Discarded int       `json:"discarded"`
	FirstAt   time.Time `json:"first_at,omitzero"`
	LastAt    time.Time `json:"last_at,omitzero"`
}

func causeOf(g stores.Cause) causeRecord {
	return causeRecord{
		Cause: text(g.ID), consumerRecord: consumerOf(g.Consumer), Class: text(g.Class), Error: text(g.Error),
		Pending: g.Pending, Failed: g.Failed, Discarded: g.Discarded, FirstAt: g.FirstAt.UTC(), LastAt: g.LastAt.UTC(),
	}
}

var causeColumns = columns{
	causeColumn, consumerColumn, classColumn,
	{"FAILED", "how many messages have failed for good"},
	{"PENDING", "how many will be tried again"},
	{"DISCARDED", "how many were discarded; counted if --status selects them"},
	{"FIRST", "when the first of them failed"},
	{"LAST", "when the last of them failed"},
	errorColumn,
}

func (p *program) causeCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "cause", Aliases: []string{"causes"}, Short: "Causes of failures"}, p.causeLs())
}

func (p *program) causeLs() *cobra.Command {
	var s selection
	var limit int
	cmd := explained(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the causes of failures, the most frequent first",
		Long: `List the causes of failures, the most frequent first.

Errors that differ only in ids and numbers are one cause. msg ls, retry and discard
take it as --cause.`,
		Example: `  millpond cause ls
  millpond cause ls --consumer billing/charge --since 1d`,
		Args: noArguments,
	}, causeColumns, unknownConsumer)
	s.bind(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this `number` of causes")
	cmd.RunE = p.withStore(func(ctx context.Context, st store, _ []string) error {
		f, chosen, err := s.filter(nil, p.now())
		if err != nil {
			return err
		}
		if limit <= 0 {
			return usagef("--limit is %d: use a positive number", limit)
		}
		if err := s.known(ctx, p, st); err != nil {
			return err
		}
		causes, err := answer(ctx, p, func(ctx context.Context) ([]stores.Cause, error) { return st.Causes(ctx, f, limit) })
		if err != nil {
			return err
		}
		if err := p.listCauses(causes); err != nil {
			return err
		}
		switch {
		case len(causes) == 0 && len(chosen) > 0:
			fmt.Fprintln(p.err, "no such causes")
		case len(causes) == 0:
			fmt.Fprintln(p.err, "no message is pending or failed")
		case len(causes) == limit:
			fmt.Fprintf(p.err, "there may be more: --limit %d\n", 10*limit)
		}
		return nil
	})
	return cmd
}

func (p *program) listCauses(causes []stores.Cause) error {
	l := p.newList(causeColumns)
	for _, g := range causes {
		l.add(causeOf(g), p.causeCells(g)...)
	}
	return l.close()
}

func (p *program) causeCells(g stores.Cause) []string {
	return []string{
		g.ID, g.Consumer.String(), string(g.Class), count(g.Failed), count(g.Pending), count(g.Discarded),
		p.ago(g.FirstAt), p.ago(g.LastAt), cut(printable(firstLine(g.Error)), shownError),
	}
}
