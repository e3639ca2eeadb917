// Command swap runs one service on the broker that its configuration names, and shows that
// it does the same on each. A shop publishes orders, some of them twice; the warehouse
// reserves them from its stock, fails about some at first and about one for good. When all
// are settled the reservations are compared with the orders, one by one.
//
// The service is in service.go. Everything else is around it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit code: 0 if every order is accounted for.
func run(ctx context.Context, args []string, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "swap:", err)
		return 2
	}
	if err := story(ctx, o, out, messages); err != nil {
		fmt.Fprintln(messages, "swap:", err)
		return 1
	}
	return 0
}

// options are the flags.
type options struct {
	config  string
	timeout time.Duration
}

func parseOptions(args []string, messages io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("swap", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.config, "config", "", "the service's `file`, such as examples/swap/memory.yaml")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait until every order is settled")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "swap runs one service on the broker that its configuration names.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, err
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag (-h shows all)", flags.Arg(0))
	case o.config == "":
		return o, errors.New("name the service's file, such as --config examples/swap/memory.yaml")
	case o.timeout <= 0:
		return o, errors.New("--timeout takes a positive duration such as 1m")
	}
	return o, nil
}
