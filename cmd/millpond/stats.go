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
	More   bool      `json:"more"` // there are more than count, which is a bound
	Oldest time.Time `json:"oldest_at,omitzero"`
}

func (p *program) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count what has failed and what is in quarantine, by consumer",
		Args:  cobra.NoArgs,
		RunE: p.withStore(func(ctx context.Context, st store, _ []string) error {
			var counts []stores.Count
			if err := p.ask(ctx, func(ctx context.Context) (err error) {
				counts, err = st.Counts(ctx, p.countLimit)
				return err
			}); err != nil {
				return err
			}
			l := p.newList("CONSUMER", "STATUS", "COUNT", "OLDEST")
			for _, c := range counts {
				l.add(countRecord{consumerOf(c.Consumer), c.Status, c.N, c.More, c.Oldest.UTC()},
					c.Consumer.String(), c.Status, atLeast(c.N, c.More), p.ago(c.Oldest))
			}
			if l.rows == 0 {
				fmt.Fprintln(p.err, "nothing has failed that is not repaired, and the quarantine is empty")
			}
			return l.close()
		}),
	}
}
