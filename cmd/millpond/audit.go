package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// auditRecord is an entry of audit ls.
type auditRecord struct {
	ID     int64       `json:"id"`
	At     time.Time   `json:"at"`
	Verb   stores.Verb `json:"verb"`
	Actor  text        `json:"actor"`
	Reason text        `json:"reason,omitempty"`
	consumerRecord
	idRecord
	Number int64  `json:"number"` // of the message, or of the row in quarantine
	Before string `json:"before"` // the status before the decision
	After  string `json:"after"`
}

var auditColumns = columns{
	{"AUDIT", "the number of the decision, which --before takes"},
	{"AT", "when it was made"},
	{"VERB", "retry, discard, resolve, release, reject, reopen or erase, or outbox retry, discard, replay or erase"},
	{"NUMBER", "the number of the message, the row in quarantine, or the number in the outbox"},
	consumerColumn, idColumn,
	{"BEFORE", "the status before the decision"},
	{"AFTER", "the status after the decision"},
	{"ACTOR", "who decided"},
	{"REASON", "why, shortened"},
}

func (p *program) auditCommand() *cobra.Command {
	var g page
	ls := explained(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List decisions, the latest first",
		Args:    noArguments,
	}, auditColumns, nil)
	g.bind(ls, "decisions")
	ls.RunE = p.withStore(func(ctx context.Context, st store, _ []string) error {
		if err := g.check(); err != nil {
			return err
		}
		l := p.newList(auditColumns)
		return pages(ctx, p, g, l, "decisions", st.Audit, func(e stores.AuditEntry) int64 {
			l.add(auditRecord{
				e.ID, e.At.UTC(), e.Verb, text(e.Actor), text(e.Reason), consumerOf(e.Consumer), idOf(e.MessageID), e.Number, e.Before, e.After,
			},
				strconv.FormatInt(e.ID, 10), p.ago(e.At), string(e.Verb), strconv.FormatInt(e.Number, 10), consumerName(e.Consumer),
				cut(showID(e.MessageID), 50), e.Before, e.After, e.Actor, cut(printable(e.Reason), shownError))
			return e.ID
		})
	})
	return parent(&cobra.Command{Use: "audit", Short: "Decisions of operators"}, ls)
}
