package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run is the program: the parent, or one of the processes that it starts.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if w, ok, err := asWorker(); ok || err != nil {
		if err != nil {
			return err
		}
		return w.run(ctx, out)
	}
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, r.chart(), 0o600); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, r.table())
	return err
}

// options are the flags.
type options struct {
	on        []string
	processes []int
	messages  int
	kills     int
	work      time.Duration
	svg       string
	progress  io.Writer
}

func parseOptions(args []string, progress io.Writer) (options, error) {
	o := options{progress: progress}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(progress)
	on := flags.String("on", strings.Join(kindNames(), ","), "what to measure")
	processes := flags.String("processes", "1,2,4,8", "numbers of processes")
	flags.IntVar(&o.messages, "messages", 20000, "messages of each cell; a fifth of it on DynamoDB")
	flags.IntVar(&o.kills, "kills", 8, "how many processes are killed, and half as many asked to leave, on each store")
	flags.DurationVar(&o.work, "work", 0, "how long the handler waits for something else, such as 20ms")
	flags.StringVar(&o.svg, "svg", "", "also draw the rates into this `file`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for name := range strings.SplitSeq(*on, ",") {
		if !slices.Contains(kindNames(), name) {
			return o, fmt.Errorf("-on has %q: there are %s", name, strings.Join(kindNames(), ", "))
		}
		o.on = append(o.on, name)
	}
	for text := range strings.SplitSeq(*processes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > partitions {
			return o, fmt.Errorf("-processes has %q: give numbers from 1 to %d", text, partitions)
		}
		o.processes = append(o.processes, n)
	}
	if o.messages < 100 || o.kills < 0 || o.work < 0 {
		return o, errors.New("-messages must be 100 or more, and -kills and -work not negative")
	}
	return o, nil
}
