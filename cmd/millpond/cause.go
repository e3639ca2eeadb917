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
	Error     text      `json:"error"` // of one of its messages
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

func (p *program) causeCommand() *cobra.Command {
	var s selection
	var limit int
	ls := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what failed by reason, the largest causes first",
		Long: `List what failed by reason, the largest causes first.

Errors that differ only in ids and numbers are one cause. msg ls, retry and discard
take it as --cause.`,
		Example: `  millpond cause ls
  millpond cause ls --consumer billing/charge --since 1d`,
		Args: cobra.NoArgs,
	}
	s.bind(ls)
	ls.Flags().IntVar(&limit, "limit", 50, "at most this `number` of causes")
	ls.RunE = p.withStore(func(ctx context.Context, st store, _ []string) error {
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
		var causes []stores.Cause
		if err := p.ask(ctx, func(ctx context.Context) (err error) {
			causes, err = st.Causes(ctx, f, limit)
			return err
		}); err != nil {
			return err
		}
		l := p.causeList()
		for _, g := range causes {
			l.add(causeOf(g), p.causeCells(g)...)
		}
		if err := l.close(); err != nil {
			return err
		}
		switch {
		case len(causes) == 0 && len(chosen) > 0:
			fmt.Fprintln(p.err, "no such causes")
		case len(causes) == 0:
			fmt.Fprintln(p.err, "nothing has failed that is not repaired")
		case len(causes) == limit:
			fmt.Fprintf(p.err, "there may be more: --limit %d\n", 10*limit)
		}
		return nil
	})
	cmd := &cobra.Command{
		Use:     "cause",
		Aliases: []string{"causes"},
		Short:   "What failed, by reason",
		Args:    knownCommand,
		RunE:    needCommand,
	}
	cmd.AddCommand(ls)
	return cmd
}

func (p *program) causeList() *list {
	return p.newList("CAUSE", "CONSUMER", "CLASS", "FAILED", "PENDING", "DISCARDED", "FIRST", "LAST", "ERROR")
}

func (p *program) causeCells(g stores.Cause) []string {
	return []string{
		g.ID, g.Consumer.String(), string(g.Class), count(g.Failed), count(g.Pending), count(g.Discarded),
		p.ago(g.FirstAt), p.ago(g.LastAt), cut(printable(firstLine(g.Error)), shownError),
	}
}
