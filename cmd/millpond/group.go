package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// groupRecord is a group of group ls and of a dry run.
type groupRecord struct {
	Group text `json:"group"`
	consumerRecord
	Class     text      `json:"class"`
	Error     text      `json:"error"` // of one of its messages
	Pending   int       `json:"pending"`
	Failed    int       `json:"failed"`
	Discarded int       `json:"discarded"`
	FirstAt   time.Time `json:"first_at,omitzero"`
	LastAt    time.Time `json:"last_at,omitzero"`
}

func groupOf(g stores.Group) groupRecord {
	return groupRecord{
		Group: text(g.Group), consumerRecord: consumerOf(g.Consumer), Class: text(g.Class), Error: text(g.Error),
		Pending: g.Pending, Failed: g.Failed, Discarded: g.Discarded, FirstAt: g.FirstAt.UTC(), LastAt: g.LastAt.UTC(),
	}
}

func (p *program) groupCommand() *cobra.Command {
	var s selection
	var limit int
	ls := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what failed by reason, the largest groups first",
		Long: `List what failed by reason, the largest groups first.

Errors that differ only in ids and numbers are one group. msg ls, retry and discard
take it as --group.`,
		Example: `  millpond group ls
  millpond group ls --consumer billing/charge --since 1d`,
		Args: cobra.NoArgs,
	}
	s.bind(ls)
	ls.Flags().IntVar(&limit, "limit", 50, "at most this `number` of groups")
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
		var groups []stores.Group
		if err := p.ask(ctx, func(ctx context.Context) (err error) {
			groups, err = st.Groups(ctx, f, limit)
			return err
		}); err != nil {
			return err
		}
		l := p.groupList()
		for _, g := range groups {
			l.add(groupOf(g), p.groupCells(g)...)
		}
		if err := l.close(); err != nil {
			return err
		}
		switch {
		case len(groups) == 0 && len(chosen) > 0:
			fmt.Fprintln(p.err, "no such groups")
		case len(groups) == 0:
			fmt.Fprintln(p.err, "nothing has failed that is not repaired")
		case len(groups) == limit:
			fmt.Fprintf(p.err, "there may be more: --limit %d\n", 10*limit)
		}
		return nil
	})
	cmd := &cobra.Command{
		Use:     "group",
		Aliases: []string{"groups"},
		Short:   "What failed, by reason",
		Args:    knownCommand,
		RunE:    needCommand,
	}
	cmd.AddCommand(ls)
	return cmd
}

func (p *program) groupList() *list {
	return p.newList("GROUP", "CONSUMER", "CLASS", "FAILED", "PENDING", "DISCARDED", "FIRST", "LAST", "ERROR")
}

func (p *program) groupCells(g stores.Group) []string {
	return []string{
		g.Group, g.Consumer.String(), string(g.Class), count(g.Failed), count(g.Pending), count(g.Discarded),
		p.ago(g.FirstAt), p.ago(g.LastAt), cut(printable(firstLine(g.Error)), shownError),
	}
}
