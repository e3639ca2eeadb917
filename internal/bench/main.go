package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) // it could not be measured; what was measured is never an error
	}
}

// groupNames are the groups, in the order in which they are measured.
var groupNames = []string{
	"first", "duplicates", "far-first", "far-duplicates", "failures", "leases", "batches", "offered-few", "offered-many", "telemetry", "database-sql", "outputs", "relay", "relay-history", "relay-snapshot", "relay-prompt", "relay-wake", "forwarder", "relay-kafka", "purge", "completed", "sqlite", "batches-sqlite", "purge-sqlite", "mysql", "purge-mysql", "outputs-mysql", "batches-mysql", "kafka", "rabbitmq", "sqs", "nats", "middleware",
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		groups     = flags.String("groups", strings.Join(groupNames, ","), "what to measure")
		only       = flags.String("only", "", "measure only what matches this regular `expression`, as recipe/workers")
		workers    = flags.String("workers", "1,4,16,64", "numbers of workers")
		repeats    = flags.Int("repeats", 7, "how often each cell is measured")
		turns      = flags.Int("turns", 1, "in how many turns a repeat measures each cell, so that whatever slows the machine down for a while slows all of them")
		cell       = flags.Duration("cell", 300*time.Millisecond, "how long a turn of a cell takes, about")
		waiting    = flags.Int("waiting", 1_000_000, "how many parked messages that are not due the group failures adds")
		history    = flags.Int("history", 10_000_000, "how many published outputs the group relay-history adds")
		backlog    = flags.Int("backlog", 400_000, "how many outputs the group relay-snapshot relays")
		completed  = flags.Int("completed", 20_000_000, "how many completed rows the group completed adds to each of two tables")
		output     = flags.String("o", "table", "print a `table` or json")
		markdown   = flags.Bool("markdown", false, "also write "+documentName)
		cpuProfile = flags.String("cpuprofile", "", "write a CPU profile to `file`, labelled by recipe and workers")
		memProfile = flags.String("memprofile", "", "write a profile of allocations to `file`")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := options{repeats: *repeats, turns: *turns, cell: *cell, waiting: *waiting, history: *history, backlog: *backlog, completed: *completed, progress: log.New(stderr, "", 0)}
	if err := o.parse(*groups, *only, *workers); err != nil {
		return err
	}
	if *output != "table" && *output != "json" {
		return fmt.Errorf("-o is %q: use table or json", *output)
	}
	endProfile, err := profileCPU(*cpuProfile)
	if err != nil {
		return err
	}
	r, err := measureAll(ctx, o)
	if err := errors.Join(err, endProfile(), profileAllocs(*memProfile)); err != nil {
		return err
	}
	if *markdown {
		if err := r.writeDocument(); err != nil {
			return err
		}
	}
	if *output == "json" {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	_, err = io.WriteString(stdout, r.text())
	return err
}

// parse reads the flags that are lists or expressions.
func (o *options) parse(groups, only, workers string) error {
	o.groups = strings.Split(groups, ",")
	for _, name := range o.groups {
		if !slices.Contains(groupNames, name) {
			return fmt.Errorf("-groups has %q: use %s", name, strings.Join(groupNames, ", "))
		}
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	o.selected = pattern.MatchString
	for field := range strings.SplitSeq(workers, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > mostWorkers {
			return fmt.Errorf("-workers has %q: use numbers from 1 to %d, such as 1,16", field, mostWorkers)
		}
		o.workers = append(o.workers, n)
	}
	slices.Sort(o.workers)
	o.workers = slices.Compact(o.workers)
	switch {
	case o.repeats < 1:
		return fmt.Errorf("-repeats is %d: use a positive number", o.repeats)
	case o.turns < 1:
		return fmt.Errorf("-turns is %d: use a positive number", o.turns)
	case o.waiting < 1:
		return fmt.Errorf("-waiting is %d: use a positive number", o.waiting)
	case o.history < 1:
		return fmt.Errorf("-history is %d: use a positive number", o.history)
	case o.backlog < 1:
		return fmt.Errorf("-backlog is %d: use a positive number", o.backlog)
	case o.completed < 1:
		return fmt.Errorf("-completed is %d: use a positive number", o.completed)
	case o.cell <= 0:
		return fmt.Errorf("-cell is %v: use a positive duration", o.cell)
	}
	return nil
}

// mostWorkers is what the server has connections for.
const mostWorkers = 64
