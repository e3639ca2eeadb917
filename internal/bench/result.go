package main

import (
	"runtime"
	"strings"
	"time"
)

// report is what a run has found.
type report struct {
	Machine    machine       `json:"machine"`
	Began      time.Time     `json:"began"`
	Took       time.Duration `json:"took_ns"`
	Repeats    int           `json:"repeats"`
	Turns      int           `json:"turns"`
	Cell       time.Duration `json:"cell_ns"`
	Goals      []goalResult  `json:"goals"`
	Groups     []groupResult `json:"groups"`
	Middleware []callResult  `json:"middleware,omitempty"`
}

// groupResult is the table of one group.
type groupResult struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	About string `json:"about"`
	Rows  []row  `json:"rows"`
}

// row is one recipe with one number of workers. Its figures are medians.
type row struct {
	Recipe    string   `json:"recipe"`
	Workers   int      `json:"workers"`
	Count     int      `json:"messages_per_cell"`
	Rate      figure   `json:"messages_per_second"`
	P50       figure   `json:"p50_ms"`
	P99       figure   `json:"p99_ms"`
	Client    figure   `json:"client_cpu_us_per_message"`
	Server    figure   `json:"server_cpu_us_per_message"`
	WAL       figure   `json:"wal_bytes_per_message"`
	Commits   figure   `json:"commits_per_message"`
	Trips     figure   `json:"round_trips_per_message"`
	Against   string   `json:"against,omitempty"`
	RateRatio span     `json:"rate_ratio"`
	CPURatio  span     `json:"cpu_ratio"`
	Samples   []sample `json:"samples"`
}

// result makes the table of a group.
func (g *group) result(contenders []contender) groupResult {
	r := groupResult{Name: g.name, Title: g.title, About: g.about}
	for _, c := range contenders {
		trips, counted := g.trips[c.recipe.name]
		row := row{
			Recipe: c.recipe.name, Workers: c.workers, Count: c.count, Samples: c.samples,
			Rate:    c.median(func(s sample) figure { return figure(s.Rate) }),
			P50:     c.median(func(s sample) figure { return milliseconds(s.P50) }),
			P99:     c.median(func(s sample) figure { return milliseconds(s.P99) }),
			Client:  c.median(func(s sample) figure { return s.Client }),
			Server:  c.median(func(s sample) figure { return s.Server }),
			WAL:     c.median(func(s sample) figure { return s.WAL }),
			Commits: c.median(func(s sample) figure { return s.Commits }),
			Trips:   figure(trips),
			Against: c.recipe.against,
		}
		if !counted {
			row.Trips = unknown
		}
		r.Rows = append(r.Rows, row)
	}
	for i := range r.Rows {
		r.Rows[i].RateRatio, r.Rows[i].CPURatio = r.ratios(&r.Rows[i], r.Rows[i].Against)
	}
	return r
}

func milliseconds(d time.Duration) figure {
	if d == 0 {
		return unknown
	}
	return figure(d.Seconds() * 1e3)
}

func (c *contender) median(of func(sample) figure) figure {
	values := make([]figure, len(c.samples))
	for i, s := range c.samples {
		values[i] = of(s)
	}
	return spanOf(values).Median
}

// row returns a row, nil if there is none.
func (r *groupResult) row(recipe string, workers int) *row {
	for i := range r.Rows {
		if r.Rows[i].Recipe == recipe && r.Rows[i].Workers == workers {
			return &r.Rows[i]
		}
	}
	return nil
}

// rates is the row's messages a second, with how far its repeats lie apart.
func (r *row) rates() span {
	var rates []figure
	for _, s := range r.Samples {
		rates = append(rates, figure(s.Rate))
	}
	return spanOf(rates)
}

// ratios compares a row with another recipe, repeat by repeat: how many times its
// rate is, and how many times the other needs its processor time. Above one is
// better.
func (r *groupResult) ratios(of *row, against string) (rate, cpu span) {
	other := r.row(against, of.Workers)
	if other == nil {
		return spanOf(nil), spanOf(nil)
	}
	var rates, cpus []figure
	for i := range of.Samples {
		rates = append(rates, figure(of.Samples[i].Rate/other.Samples[i].Rate))
		cpus = append(cpus, other.Samples[i].cpu()/of.Samples[i].cpu())
	}
	return spanOf(rates), spanOf(cpus)
}

// cpu is what client and server spent, in microseconds. Without a server, the client.
func (s sample) cpu() figure {
	if !s.WAL.known() {
		return s.Client
	}
	return s.Client + s.Server
}

// machine is where the run was made.
type machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
	Postgres  string `json:"postgres,omitempty"`
	Kafka     string `json:"kafka,omitempty"`
	Flush     figure `json:"flush_us"` // of 8 kB to the disk
	LoadStart figure `json:"load_at_start"`
	LoadEnd   figure `json:"load_at_end"`
}

func (m machine) String() string {
	parts := []string{
		m.Processor, plural(m.Cores, "core") + " for client and servers", m.System, m.Go,
	}
	if m.Postgres != "" {
		parts = append(parts, "PostgreSQL "+m.Postgres)
	}
	if m.Kafka != "" {
		parts = append(parts, "Kafka "+m.Kafka)
	}
	parts = append(parts,
		"8 kB flushed to the disk in "+m.Flush.text()+" µs",
		"load "+m.LoadStart.text()+" at the start and "+m.LoadEnd.text()+" at the end")
	return strings.Join(parts, ", ")
}

func system() string { return runtime.GOOS + "/" + runtime.GOARCH }
