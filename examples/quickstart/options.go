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

	events       string
	eventsCount  int
	store        string
	db           string
	fresh        bool
	withoutInbox bool
	workers      int
	kills        int
	seed         uint64
	output       string
	verbose      bool
}

var errHelp = errors.New("help was asked for")

func parseOptions(args []string, messages io.Writer) (options, error) {
	o := options{args: args}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.events, "events", "", "read events from this `file` of JSON lines, - for standard input")
	flags.IntVar(&o.eventsCount, "events-count", 10_000, "or generate this many `events`")
	flags.StringVar(&o.db, "db", "quickstart.db", "the SQLite `file`")
	flags.StringVar(&o.store, "store", "", "use PostgreSQL at this `URL` instead of SQLite")
	flags.BoolVar(&o.fresh, "fresh", false, "begin with an empty database")
	flags.BoolVar(&o.withoutInbox, "without-inbox", false, "show the damage, in a database of its own that begins empty")
	flags.IntVar(&o.workers, "workers", 4, "how many worker `processes`")
	flags.IntVar(&o.kills, "kills", 8, "how many `times` a worker is killed in the middle")
	flags.Uint64Var(&o.seed, "seed", 1, "the `number` that decides about events, duplicates, order and kills")
	flags.StringVar(&o.output, "o", "table", "`table` or json")
	flags.BoolVar(&o.verbose, "verbose", false, "show the logs of the workers")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "quickstart kills an inventory service again and again, and shows that its stock is right.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, errHelp
	}
	if err != nil {
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	}
	if err := o.check(flags); err != nil {
		return o, err
	}
	if o.withoutInbox { // a database of its own, which nobody else needs
		ext := filepath.Ext(o.db)
		o.db = strings.TrimSuffix(o.db, ext) + "-without-inbox" + ext
		o.fresh = true
	}
	return o, nil
}

func (o options) check(flags *flag.FlagSet) error {
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is no flag: a file of events is given with --events", flags.Arg(0))
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("-o is %q: table and json are known", o.output)
	case o.eventsCount < 1:
		return fmt.Errorf("--events-count is %d: at least 1 is needed", o.eventsCount)
	case o.workers < 1:
		return fmt.Errorf("--workers is %d: at least 1 is needed", o.workers)
	case o.kills < 0:
		return fmt.Errorf("--kills is %d: it cannot be negative", o.kills)
	case given["events"] && given["events-count"]:
		return errors.New("--events and --events-count exclude each other")
	case given["events"] && o.events == "":
		return errors.New("--events is empty: name a file, or - for standard input")
	case o.db == "":
		return errors.New("--db is empty: name a file")
	case given["store"] && given["db"]:
		return errors.New("--store and --db exclude each other: --db names an SQLite file")
	case given["store"] && !strings.HasPrefix(o.store, "postgres://") && !strings.HasPrefix(o.store, "postgresql://"):
		return errors.New("--store takes a URL that begins with postgres://; for SQLite use --db")
	}
	return nil
}

// openInput returns the events that the options name.
func openInput(o options, in io.Reader) (input, error) {
	switch o.events {
	case "":
		return generated{seed: o.seed, count: o.eventsCount}, nil
	case "-":
		return openStdin(in)
	default:
		return openFile(o.events)
	}
}
