// Command tracing shows one trace from an HTTP request to the SQL statements of another
// service. A shop takes orders by HTTP and publishes them; a warehouse, behind a real
// broker, reserves what was ordered. One order is posted twice, and one fails once and is
// tried again. The traces are printed as trees, and written as a picture if wanted.
//
// With OTEL_EXPORTER_OTLP_ENDPOINT they are also sent to a collector.
//
// The services are in services.go. Everything else is around them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program. It returns the exit code.
func run(ctx context.Context, args, environ []string, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "tracing:", err)
		return 2
	}
	o.environ = environ
	if err := story(ctx, o, out, messages); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(messages, "tracing:", err)
		return 1
	}
	return 0
}

// options are the flags, and the environment.
type options struct {
	svg     string
	listen  string
	keep    bool
	timeout time.Duration
	environ []string
}

func parseOptions(args []string, messages io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("tracing", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.svg, "svg", "", "also write the traces as a picture, to this `file`")
	flags.StringVar(&o.listen, "listen", "", "where the warehouse answers /metrics, such as 127.0.0.1:9464; default a free port")
	flags.BoolVar(&o.keep, "keep", false, "go on posting an order a second until interrupted, for those who watch elsewhere")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long the whole story may take")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "tracing prints traces from an HTTP request to the SQL statements of another service.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, err
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag (-h shows all)", flags.Arg(0))
	case o.timeout <= 0:
		return o, errors.New("--timeout takes a positive duration such as 2m")
	}
	return o, nil
}
