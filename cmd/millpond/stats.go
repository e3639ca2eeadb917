package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// countRecord is a line of stats.
type countRecord struct {
	consumerRecord
	Status string    `json:"status"` // of messages, or "quarantined"
	Count  int       `json:"count"`
	More   bool      `json:"more"` // there are more than count
	Oldest time.Time `json:"oldest_at,omitzero"`
}

var countColumns = columns{
	consumerColumn,
	{"STATUS", "pending, failed or discarded, as in msg ls; quarantined: held in quarantine"},
	{"COUNT", "how many there are; with a +: at least this many"},
	{"OLDEST", "when the oldest of them first failed, or was quarantined"},
}

func (p *program) statsCommand() *cobra.Command {
	return explained(&cobra.Command{
		Use:   "stats",
		Short: "Count failed and quarantined messages by consumer",
		Args:  noArguments,
		RunE: p.withStore(func(ctx context.Context, st store, _ []string) error {
			counts, err := answer(ctx, p, func(ctx context.Context) ([]stores.Count, error) { return st.Counts(ctx, p.countLimit) })
			if err != nil {
				return err
			}
			l := p.newList(countColumns)
			for _, c := range counts {
				l.add(countRecord{consumerOf(c.Consumer), c.Status, c.N, c.More, c.Oldest.UTC()},
					c.Consumer.String(), c.Status, atLeast(c.N, c.More), p.ago(c.Oldest))
			}
			if l.rows == 0 {
				fmt.Fprintln(p.err, "no message is pending, failed, discarded or held in quarantine")
			}
			return l.close()
		}),
	}, countColumns, nil)
}
