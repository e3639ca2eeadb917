package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
)

const (
	topic    = "orders"
	inFlight = 4   // deliveries in the hands of one worker
	again    = 0.2 // part of the deliveries that are made once more
)

// The places in which workers are killed.
const (
	beforeRequest = "before the request"
	afterAnswer   = "after the answer"
	beforeCommit  = "before the commit"
	afterCommit   = "after the commit"
)

var everyPlace = []string{beforeRequest, afterAnswer, beforeCommit, afterCommit}

// places tells the parent where a worker is, beside what the client tells.
type places struct{ worker *fleet.Worker }

var (
	_ middleware.CommitStartHook = places{}
	_ middleware.CommitEndHook   = places{}
)

func (p places) CommitStart(ctx context.Context) context.Context {
	p.worker.Announce(beforeCommit)
	return ctx
}

func (p places) CommitEnd(context.Context, error) { p.worker.Announce(afterCommit) }

// feed runs the workers until every delivery is settled, and nothing is left for an operator.
func feed(ctx context.Context, o options, p *provider, op *operator, messages io.Writer) (fleet.Report, error) {
	progress := newProgress(o, p, op, messages)
	report, err := fleet.Run(ctx, fleet.Config{
		Source:     publish(o),
		Command:    fleet.Self(append(slices.Clip(o.args), "--provider", p.url)...),
		Workers:    o.workers,
		InFlight:   inFlight,
		Seed:       o.seed,
		Duplicates: again,
		Reorder:    20,
		Kills:      kills(o),
		AtRest:     op.settle,
		Progress:   progress.show,
	})
	progress.end()
	return report, err
}

// kills strikes in every place, and at random moments.
func kills(o options) []fleet.Kill {
	rng := rand.New(rand.NewPCG(o.seed, 1)) //nolint:gosec // it must be replayable, not secret
	inPlaces := o.kills * 2 / 3
	all := fleet.RandomKills(o.seed, o.kills-inPlaces, o.orders, o.workers)
	for i := range inPlaces {
		per := max(o.orders*len(everyPlace)/max(inPlaces, 1), 1) // orders between two kills in one place
		all = append(all, fleet.Kill{Kind: fleet.SIGKILL, Point: everyPlace[i%len(everyPlace)], Hit: 1 + i/len(everyPlace)*per + rng.IntN(per)})
	}
	return all
}

// publish sends the orders.
func publish(o options) iter.Seq2[fleet.Message, error] {
	return func(yield func(fleet.Message, error) bool) {
		for i := range o.orders {
			payload, err := json.Marshal(orderOf(i))
			if !yield(fleet.Message{Topic: topic, Payload: payload}, err) || err != nil {
				return
			}
		}
	}
}

func orderOf(i int) order {
	return order{OrderID: fmt.Sprintf("A-%05d", i+1), Cents: int64(1000 + i*37%9000)}
}

// progress is a line that is written again and again on a terminal, and now and then elsewhere.
type progress struct {
	out      io.Writer
	orders   int
	provider *provider
	operator *operator
	terminal bool
	shown    time.Time
}

func newProgress(o options, provider *provider, op *operator, out io.Writer) *progress {
	p := &progress{out: out, orders: o.orders, provider: provider, operator: op, shown: time.Now()}
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
	charged, requests, lost := p.provider.progress()
	text := fmt.Sprintf("%s of %s orders charged, %s requests, %s answers lost, %d kills",
		humanize.Comma(int64(charged)), humanize.Comma(int64(p.orders)), humanize.Comma(int64(requests)), humanize.Comma(int64(lost)), r.Kills[fleet.SIGKILL])
	if open := p.operator.open.Load(); open > 0 {
		text += fmt.Sprintf(", %d to be tried again or decided", open)
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
