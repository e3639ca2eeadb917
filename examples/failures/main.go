// Command failures shows what becomes of messages whose handler fails. An order service
// takes payments; the payment handler fails in five ways, each for its own reason. What
// heals by itself does so; the rest is looked at, repaired and tried again with the
// command millpond, while the service runs. In the end the charges are compared with
// the orders, one by one.
//
// The service is in payments.go. Everything else is around it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program. It returns the exit code: 0 if every order is accounted for.
func run(ctx context.Context, args []string, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "failures:", err)
		return 2
	}
	if err := tell(ctx, o, out, messages); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(messages, "failures:", err)
		return 1
	}
	return 0
}

// options are the flags.
type options struct {
	db       string
	store    string
	millpond string
	verbose  bool
}

func parseOptions(args []string, messages io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("failures", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.db, "db", "failures.db", "the SQLite `file`, which begins empty each time")
	flags.StringVar(&o.store, "store", "", "use PostgreSQL at this `URL` instead, in the schema "+postgresSchema+", which begins empty each time")
	flags.StringVar(&o.millpond, "millpond", "", "use this `binary` of the command millpond instead of building it")
	flags.BoolVar(&o.verbose, "verbose", false, "show the service's log")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "failures lets a payment handler fail in five ways, and repairs what does not heal by itself.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag (-h shows all)", flags.Arg(0))
	case o.db == "":
		return o, errors.New("--db is empty: name a file")
	case given["store"] && given["db"]:
		return o, errors.New("--store and --db exclude each other: --db names an SQLite file")
	case given["store"] && !strings.HasPrefix(o.store, "postgres://") && !strings.HasPrefix(o.store, "postgresql://"):
		return o, errors.New("--store takes a URL that begins with postgres://; for SQLite use --db")
	}
	return o, nil
}

func logger(o options, messages io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(messages, nil))
}
