package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// options are the flags.
type options struct {
	args []string // as given, for the workers

	db           string
	orders       int
	kills        int
	workers      int
	seed         uint64
	withoutLease bool
	output       string
	verbose      bool
	provider     string // its address, for workers
}

func parseOptions(args []string, messages io.Writer) (options, error) {
	o := options{args: args}
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.db, "db", "payments.db", "the SQLite `file`, which begins empty each time")
	flags.IntVar(&o.orders, "orders", 500, "how many `orders` are paid")
	flags.IntVar(&o.kills, "kills", 15, "how many `times` a worker is killed in the middle")
	flags.IntVar(&o.workers, "workers", 4, "how many worker `processes`")
	flags.Uint64Var(&o.seed, "seed", 1, "the `number` that decides about duplicates, order and kills")
	flags.BoolVar(&o.withoutLease, "without-lease", false, "show the damage")
	flags.StringVar(&o.output, "o", "table", "`table` or json")
	flags.BoolVar(&o.verbose, "verbose", false, "show the logs of the workers")
	flags.StringVar(&o.provider, "provider", "", "the `address` of the provider; workers are given it")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "payments kills a service in the middle of its calls to a payment provider, and compares the books.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag (-h shows all)", flags.Arg(0))
	case o.output != "table" && o.output != "json":
		return o, fmt.Errorf("-o is %q: table and json are known", o.output)
	case o.orders < 1:
		return o, fmt.Errorf("--orders is %d: at least 1 is needed", o.orders)
	case o.workers < 1:
		return o, fmt.Errorf("--workers is %d: at least 1 is needed", o.workers)
	case o.kills < 0:
		return o, fmt.Errorf("--kills is %d: it cannot be negative", o.kills)
	case o.db == "":
		return o, errors.New("--db is empty: name a file")
	}
	if o.withoutLease { // a database of its own
		ext := filepath.Ext(o.db)
		o.db = strings.TrimSuffix(o.db, ext) + "-without-lease" + ext
	}
	o.db, err = filepath.Abs(o.db)
	return o, err
}
