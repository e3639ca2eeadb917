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
	groups   []string
	workers  []int
	repeats  int
	cell     time.Duration          // how long a cell takes, about
	selected func(cell string) bool // by "recipe/workers"
	progress *log.Logger
}

// contender is one recipe with one number of workers.
type contender struct {
	recipe  *recipe
	workers int
	count   int // messages in a cell
	samples []sample
}

// sample is what one cell has measured.
type sample struct {
	Rate    float64       `json:"messages_per_second"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Client  figure        `json:"client_cpu_us_per_message"`
	Server  figure        `json:"server_cpu_us_per_message"`
	WAL     figure        `json:"wal_bytes_per_message"`
	Commits figure        `json:"commits_per_message"`
}

// measure runs all cells of a group as often as the options say.
func (g *group) measure(ctx context.Context, o options) ([]contender, error) {
	var contenders []contender
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
		if err := g.calibrate(ctx, &contenders[i], o.cell); err != nil {
			return nil, contenders[i].failed(err)
		}
	}
	for repeat := range o.repeats {
		o.progress.Printf("%s: repeat %d of %d", g.title, repeat+1, o.repeats)
		if g.server != nil {
			if err := g.server.checkpoint(ctx); err != nil {
				return nil, err
			}
		}
		for _, i := range inTurn(contenders) {
			if err := g.runCell(ctx, &contenders[i]); err != nil {
				return nil, contenders[i].failed(err)
			}
		}
	}
	return contenders, nil
}

// inTurn returns the order of one repeat: those with as many workers follow each
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
	return g.with(ctx, c, func(d *driver) error {
		best := 0.0 // messages a second; what is slower was disturbed
		n := 8 * c.workers
		for tries := 0; tries < 3; {
			took, _, err := d.run(g.deliveries(c.recipe, n), n)
			if err != nil {
				return err
			}
			best = max(best, float64(n)/took.Seconds())
			if took < cell/8 {
				n *= 2
				continue
			}
			tries++
		}
		c.count = max(int(best*cell.Seconds()), 4*c.workers)
		return nil
	})
}

// runCell measures a contender once.
func (g *group) runCell(ctx context.Context, c *contender) error {
	return g.with(ctx, c, func(d *driver) error {
		warmUp := max(c.count/10, 4*c.workers)
		l := g.deliveries(c.recipe, warmUp+c.count)
		if _, _, err := d.run(l, warmUp); err != nil {
			return err
		}
		s, err := g.sample(ctx, d, l.after(warmUp), c.count)
		if err == nil {
			c.samples = append(c.samples, s)
		}
		return err
	})
}

// with readies a contender on empty tables.
func (g *group) with(ctx context.Context, c *contender, use func(*driver) error) (err error) {
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
		err = c.use(ctx, use)
	})
	return err
}

func (c *contender) use(ctx context.Context, use func(*driver) error) error {
	h, err := c.recipe.open(ctx, c.workers)
	if err != nil {
		return err
	}
	d, err := newDriver(ctx, h, c.recipe.routed, c.workers)
	if err != nil {
		return errors.Join(err, h.end())
	}
	return errors.Join(use(d), d.close(), h.end())
}

// sample delivers n messages with all meters running.
func (g *group) sample(ctx context.Context, d *driver, l load, n int) (sample, error) {
	runtime.GC() // nobody pays for what was made before
	stop := func(context.Context) (spent, error) { return spent{}, nil }
	if g.server != nil {
		var err error
		if stop, err = g.server.meter(ctx); err != nil {
			return sample{}, err
		}
	}
	cpuBefore, measured := clientTime()
	took, latencies, err := d.run(l, n)
	cpuAfter, _ := clientTime()
	if err != nil {
		return sample{}, err
	}
	used, err := stop(ctx)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(latencies)
	s := sample{
		Rate: float64(n) / took.Seconds(),
		P50:  latencies[n/2],
		P99:  latencies[n*99/100],
		// What was not measured is not zero.
		Client: unknown, Server: unknown, WAL: unknown, Commits: unknown,
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
