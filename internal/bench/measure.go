package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"time"
)

// options say how a run is made.
type options struct {
	groups    []string
	workers   []int
	repeats   int
	turns     int                    // of each cell in a repeat
	cell      time.Duration          // how long a cell takes, about
	waiting   int                    // parked messages that are not due
	history   int                    // published outputs that are kept
	backlog   int                    // outputs that are relayed under an old snapshot
	completed int                    // rows of messages that are completed
	selected  func(cell string) bool // by "recipe/workers"
	progress  *log.Logger
	dir       string // for files, until the end of the run
}

// contender is one recipe with one number of workers.
type contender struct {
	recipe  *recipe
	workers int
	count   int // messages in a cell
	samples []sample
	opened  *handling // of a group whose recipes stay open
}

// sample is what one cell has measured.
type sample struct {
	Rate    float64       `json:"messages_per_second"`
	P50     time.Duration `json:"p50_ns,omitempty"` // 0: not measured
	P99     time.Duration `json:"p99_ns,omitempty"`
	Client  figure        `json:"client_cpu_us_per_message"`
	Server  figure        `json:"server_cpu_us_per_message"`
	WAL     figure        `json:"wal_bytes_per_message"`
	Commits figure        `json:"commits_per_message"`

	latencies []time.Duration // of the messages, until turns are joined
}

// joined is what a cell has measured in turns of equally many messages.
func joined(turns []sample) sample {
	mean := func(of func(sample) figure) (mean figure) {
		for _, t := range turns {
			mean += of(t) / figure(len(turns))
		}
		return mean
	}
	all := sample{
		Rate:   1 / float64(mean(func(s sample) figure { return figure(1 / s.Rate) })),
		Client: mean(func(s sample) figure { return s.Client }), Server: mean(func(s sample) figure { return s.Server }),
		WAL: mean(func(s sample) figure { return s.WAL }), Commits: mean(func(s sample) figure { return s.Commits }),
	}
	for _, t := range turns {
		all.latencies = append(all.latencies, t.latencies...)
	}
	if slices.Sort(all.latencies); len(all.latencies) > 0 {
		all.P50, all.P99 = all.latencies[len(all.latencies)/2], all.latencies[len(all.latencies)*99/100]
	}
	all.latencies = nil
	return all
}

// measure runs all cells of a group as often as the options say.
func (g *group) measure(ctx context.Context, o options) (contenders []contender, err error) {
	defer func() {
		for _, c := range contenders {
			if c.opened != nil {
				err = errors.Join(err, c.opened.end())
			}
		}
	}()
	for _, workers := range g.workers {
		for i := range g.recipes {
			c := contender{recipe: &g.recipes[i], workers: workers}
			if o.selected(c.recipe.name + "/" + strconv.Itoa(workers)) {
				contenders = append(contenders, c)
			}
		}
	}
	if len(contenders) == 0 {
		return nil, nil
	}
	o.progress.Printf("%s: %d cells, finding out how many messages each takes", g.title, len(contenders))
	for i := range contenders {
		if err := g.calibrate(ctx, &contenders[i], o.cell*time.Duration(max(g.longer, 1))); err != nil {
			return contenders, contenders[i].failed(err)
		}
	}
	for repeat := range o.repeats {
		o.progress.Printf("%s: repeat %d of %d", g.title, repeat+1, o.repeats)
		if err := g.repeat(ctx, contenders, o.turns); err != nil {
			return contenders, err
		}
	}
	return contenders, nil
}

// repeat measures each cell once, in turns.
func (g *group) repeat(ctx context.Context, contenders []contender, turns int) error {
	if g.server != nil {
		if err := g.server.checkpoint(ctx); err != nil {
			return err
		}
	}
	for range turns {
		for _, i := range inTurn(contenders) {
			if err := g.runCell(ctx, &contenders[i]); err != nil {
				return contenders[i].failed(err)
			}
		}
	}
	for i := range contenders {
		c := &contenders[i]
		before := len(c.samples) - turns
		c.samples = append(c.samples[:before], joined(c.samples[before:]))
	}
	return nil
}

// inTurn returns the order of one turn: those with as many workers follow each
// other, at random.
func inTurn(contenders []contender) []int {
	order := rand.Perm(len(contenders)) //nolint:gosec // an order, no secret
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(contenders[a].workers, contenders[b].workers)
	})
	return order
}

func (c *contender) failed(err error) error {
	return fmt.Errorf("%s with %d workers: %w", c.recipe.name, c.workers, err)
}

// calibrate finds how many messages take as long as a cell shall. It also opens the
// connections and prepares their statements.
func (g *group) calibrate(ctx context.Context, c *contender, cell time.Duration) error {
	if c.recipe.pace > 0 {
		c.count = max(int(float64(c.recipe.pace)*cell.Seconds()), g.least)
		return nil
	}
	if c.recipe.job != nil {
		return c.calibrate(cell, g.least, func(n int) (took time.Duration, err error) {
			err = g.withJob(ctx, c, n, func(j *job) error {
				took, _, err = j.run()
				return err
			})
			return took, err
		})
	}
	return g.withDriver(ctx, c, func(d *driver) error {
		return c.calibrate(cell, g.least, func(n int) (time.Duration, error) {
			took, _, err := d.run(g.deliveries(c.recipe, n), n)
			return took, err
		})
	})
}

func (c *contender) calibrate(cell time.Duration, least int, run func(n int) (time.Duration, error)) error {
	best := 0.0 // messages a second; what is slower was disturbed
	n := max(least, 8*c.workers)
	for tries := 0; tries < 3; {
		took, err := run(n)
		if err != nil {
			return err
		}
		if took < cell/8 { // too short to say much
			n *= 2
			continue
		}
		best = max(best, float64(n)/took.Seconds())
		tries++
	}
	c.count = max(int(best*cell.Seconds()), least, 4*c.workers)
	return nil
}

// runCell measures a contender in one turn.
func (g *group) runCell(ctx context.Context, c *contender) error {
	keep := func(s sample, err error) error {
		if err == nil {
			c.samples = append(c.samples, s)
		}
		return err
	}
	if c.recipe.job != nil {
		return g.withJob(ctx, c, c.count, func(j *job) error { return keep(g.sample(ctx, c.count, j.run)) })
	}
	return g.withDriver(ctx, c, func(d *driver) error {
		warmUp := max(c.count/10, 4*c.workers)
		l := g.deliveries(c.recipe, warmUp+c.count)
		if _, _, err := d.run(l, warmUp); err != nil {
			return err
		}
		l = l.after(warmUp)
		l.pace = c.recipe.pace
		return keep(g.sample(ctx, c.count, func() (time.Duration, []time.Duration, error) { return d.run(l, c.count) }))
	})
}

func (g *group) withDriver(ctx context.Context, c *contender, use func(*driver) error) error {
	return g.with(ctx, c, func(ctx context.Context) error {
		h := c.opened
		if h == nil {
			var err error
			if h, err = c.recipe.open(ctx, c.workers); err != nil {
				return err
			}
		}
		end := h.end
		if g.stayOpen {
			c.opened, end = h, func() error { return nil }
		}
		d, err := newDriver(ctx, h, c.recipe.routed, c.workers)
		if err != nil {
			return errors.Join(err, end())
		}
		return errors.Join(use(d), d.close(), end())
	})
}

func (g *group) withJob(ctx context.Context, c *contender, n int, use func(*job) error) error {
	return g.with(ctx, c, func(ctx context.Context) error {
		j, err := c.recipe.job(ctx, c.workers, n)
		if err != nil {
			return err
		}
		return errors.Join(use(j), j.close())
	})
}

// with lets a contender begin on empty tables.
func (g *group) with(ctx context.Context, c *contender, use func(context.Context) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.reset != nil {
		if err := g.reset(ctx); err != nil {
			return fmt.Errorf("empty the tables: %w", err)
		}
	}
	// Profiles can be told apart by these labels.
	pprof.Do(ctx, pprof.Labels("recipe", c.recipe.name, "workers", strconv.Itoa(c.workers)), func(ctx context.Context) {
		err = use(ctx)
	})
	return err
}

// sample runs n messages with all meters running.
func (g *group) sample(ctx context.Context, n int, run func() (time.Duration, []time.Duration, error)) (sample, error) {
	runtime.GC() // nobody pays for what was made before
	stop := func(context.Context) (spent, error) { return spent{}, nil }
	if g.server != nil {
		var err error
		if stop, err = g.server.meter(ctx); err != nil {
			return sample{}, err
		}
	}
	cpuBefore, measured := clientTime()
	took, latencies, err := run()
	cpuAfter, _ := clientTime()
	if err != nil {
		return sample{}, err
	}
	used, err := stop(ctx)
	if err != nil {
		return sample{}, err
	}
	s := sample{
		Rate: float64(n) / took.Seconds(),
		// What was not measured is not zero.
		Client: unknown, Server: unknown, WAL: unknown, Commits: unknown,
		latencies: latencies,
	}
	perMessage := func(total float64) figure { return figure(total / float64(n)) }
	if measured && !g.sharedCPU {
		s.Client = perMessage(float64((cpuAfter - cpuBefore).Nanoseconds()) / 1e3)
	}
	if g.server != nil {
		s.WAL, s.Commits = perMessage(float64(used.wal)), perMessage(float64(used.commits))
		if measured {
			s.Server = perMessage(float64(used.cpu.Nanoseconds()) / 1e3)
		}
	}
	return s, nil
}
