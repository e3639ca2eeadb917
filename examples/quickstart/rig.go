package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/millpond-go/millpond/internal/fleet"
)

const (
	topic    = "orders"
	inFlight = 8   // deliveries in the hands of one worker
	again    = 0.2 // part of the deliveries that are made once more
)

// openingStock is how many there are of each article before the first order.
const openingStock = 1_000_000

// feed runs the workers until every delivery is settled.
func feed(ctx context.Context, o options, events input, db database, messages io.Writer) (fleet.Report, error) {
	total := events.total()
	if total == 0 {
		total = 1000 // not known: let the kills fall among the first
	}
	progress := newProgress(events.total(), messages)
	report, err := fleet.Run(ctx, fleet.Config{
		Source:     publish(ctx, events, db.DB()),
		Command:    fleet.Self(o.args...),
		Workers:    o.workers,
		InFlight:   inFlight,
		Seed:       o.seed,
		Duplicates: again,
		Reorder:    20,
		Kills:      fleet.RandomKills(o.seed, o.kills, total, o.workers),
		Progress:   progress.show,
	})
	progress.end()
	return report, err
}

// publish turns lines into messages, as an adapter of a broker would, and puts every
// article on the shelf before it is ordered.
func publish(ctx context.Context, events input, db *sql.DB) iter.Seq2[fleet.Message, error] {
	return func(yield func(fleet.Message, error) bool) {
		shelves := make(map[string]bool)
		for l, err := range events.lines() {
			m := fleet.Message{Topic: topic, Payload: l.text}
			if err == nil {
				var o order
				o, err = parseOrder(l.text)
				switch {
				case errors.Is(err, errNoID):
					err = nil // an order like any other, but for the inbox
				case err != nil:
					m.Undecodable = fmt.Sprintf("%s:%d: %s", events, l.number, err)
					err = nil
				case !shelves[o.SKU]:
					shelves[o.SKU] = true
					err = putOnShelf(ctx, db, o.SKU)
				}
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

func putOnShelf(ctx context.Context, db *sql.DB, sku string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO stock (sku, quantity) VALUES ($1, $2) ON CONFLICT (sku) DO NOTHING`, sku, openingStock)
	return err
}

// progress is a line that is written again and again on a terminal, and now and then
// elsewhere.
type progress struct {
	out      io.Writer
	total    int
	terminal bool
	shown    time.Time
}

func newProgress(total int, out io.Writer) *progress {
	p := &progress{out: out, total: total, shown: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) show(r fleet.Report) {
	if !p.terminal && time.Since(p.shown) < 2*time.Second {
		return
	}
	p.shown = time.Now()
	of := ""
	if p.total > 0 {
		of = " of about " + humanize.Comma(int64(p.total))
	}
	text := fmt.Sprintf("%s%s events sent, %s deliveries settled, %.0f/s, %d kills, %s cut off and sent again",
		humanize.Comma(int64(r.Published)), of, humanize.Comma(int64(r.Acks)),
		float64(r.Acks)/r.Duration.Seconds(), r.Kills[fleet.SIGKILL], humanize.Comma(int64(r.Redeliveries)))
	if r.Nacks > 0 {
		text += fmt.Sprintf(", %s given back (--verbose shows why)", humanize.Comma(int64(r.Nacks)))
	}
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K"+text)
	} else {
		fmt.Fprintln(p.out, text)
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
