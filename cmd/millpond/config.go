package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/amqp"
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/memory"
	_ "github.com/millpond-go/millpond/brokers/nats"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

const defaultConfig = "millpond.yaml"

func (p *program) configCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "config", Short: "Write and check the configuration of a service"}, p.configInit(), p.configCheck())
}

func (p *program) configInit() *cobra.Command {
	return explained(&cobra.Command{
		Use:     "init",
		Short:   "Print a starter configuration, with every field explained",
		Example: "  millpond config init > " + defaultConfig,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(p.out, router.StarterConfig())
			return err
		},
	}, nil, nil)
}

// checkRecord is the result of config check.
type checkRecord struct {
	File      string          `json:"file"`
	Problems  []problemRecord `json:"problems"`
	Config    string          `json:"config,omitempty"`   // what the service would run with, as YAML, without secrets
	Warnings  []problemRecord `json:"warnings,omitempty"` // these are errors with --strict
	Connected bool            `json:"connected,omitempty"`
	Notes     []string        `json:"notes,omitempty"`
}

type problemRecord struct {
	Where string `json:"where,omitempty"`
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
	line  string
}

func (p *program) configCheck() *cobra.Command {
	var connect, strict bool
	cmd := explained(&cobra.Command{
		Use:   "check [file]",
		Short: "Check a configuration, and print it with its defaults",
		Long: `Check a configuration, and print it with its defaults, as a service would run with it.
All errors are reported at once. The file is ` + defaultConfig + ` if none is named. MILLPOND_*
variables override the file, as they do for the service.

Nothing is changed, and nothing is opened unless --connect is given. The handlers of the
program are checked when it starts.`,
		Args: oneArgument,
	}, nil, exits{exitOK: "no errors", exitError: "errors, or no connection with --connect"})
	cmd.Flags().BoolVar(&connect, "connect", false, "also connect to the broker, the destinations and the store, and check the store's tables")
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors, such as a password that could travel without verified TLS")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := checkRecord{File: defaultConfig, Problems: []problemRecord{}}
		if len(args) > 0 {
			r.File = args[0]
		}
		c, err := router.LoadConfig(r.File)
		if wrong, ok := errors.AsType[*router.ConfigError](err); ok {
			r.Problems = recordsOf(wrong.Problems)
			return errors.Join(p.show(r, r.text), fmt.Errorf("%s: %s", r.File, plural(len(r.Problems), "error")))
		}
		if err != nil {
			return err
		}
		r.Config = c.String()
		r.Warnings = recordsOf(c.Warnings())
		brokerURLs := []string{"broker.url"}
		urls := map[string]router.URL{"broker.url": c.Broker.URL}
		for _, name := range slices.Sorted(maps.Keys(c.Destinations)) {
			field := "destinations." + name + ".url"
			brokerURLs, urls[field] = append(brokerURLs, field), c.Destinations[name].URL
		}
		for _, field := range brokerURLs {
			r.Notes = append(r.Notes, notLinked(field, urls[field])...)
		}
		if strict && len(r.Warnings) > 0 {
			r.Problems, r.Warnings = r.Warnings, nil
			return errors.Join(p.show(r, r.text), fmt.Errorf("%s: %s, which --strict treats as errors", r.File, plural(len(r.Problems), "warning")))
		}
		if connect {
			for _, field := range brokerURLs {
				r.try(field, &c, urls[field], func() (string, error) { return p.tryBroker(cmd.Context(), urls[field]) })
			}
			r.try("store.url", &c, c.Store.URL, func() (string, error) { return p.tryStore(cmd.Context(), c.Store) })
			if r.Connected = len(r.Problems) == 0; !r.Connected {
				return errors.Join(p.show(r, r.text), fmt.Errorf("--connect has found errors: check %s", r.said()))
			}
		}
		fmt.Fprintf(p.err, "%s: no errors\n", r.File)
		return p.show(r, r.text)
	}
	return cmd
}

func recordsOf(problems []router.Problem) []problemRecord {
	records := make([]problemRecord, 0, len(problems))
	for _, one := range problems {
		records = append(records, problemRecord{one.Where, one.Field, one.Text, one.String()})
	}
	return records
}

// said names where the problems come from: variables, or the file.
func (r *checkRecord) said() string {
	var names []string
	for _, problem := range r.Problems {
		name, _, inFile := strings.Cut(problem.Where, ":")
		if inFile || name == "" {
			name = r.File
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// try adds a check's result.
func (r *checkRecord) try(field string, c *router.Config, u router.URL, do func() (string, error)) {
	note, err := do()
	if err != nil {
		text := redact(explain(err), u.Reveal())
		where := c.Origin(field)
		line := field + ": " + text
		if where != "" {
			line = where + ": " + line
		}
		r.Problems = append(r.Problems, problemRecord{where, field, text, line})
		return
	}
	r.Notes = append(r.Notes, field+": "+note)
}

func (r checkRecord) text(w io.Writer) {
	fmt.Fprint(w, printableLines(r.Config))
	for _, warning := range r.Warnings {
		fmt.Fprintln(w, "# warning: "+printable(warning.line))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "# "+printable(note))
	}
	for _, problem := range r.Problems { // printed last, so that people see them
		fmt.Fprintln(w, printable(problem.line))
	}
}

func (p *program) tryBroker(ctx context.Context, u router.URL) (note string, err error) {
	var broker brokers.Broker
	err = p.ask(ctx, func(ctx context.Context) (err error) {
		broker, err = brokers.Open(ctx, u.Reveal())
		return err
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	pinger, ok := broker.(brokers.Pinger)
	if !ok {
		return "it is there", nil
	}
	return "it answers", p.ask(ctx, pinger.Ping)
}

// tryStore opens the store as the other commands do, so it neither creates a file nor applies a
// migration. A missing file that the service will create is no error.
func (p *program) tryStore(ctx context.Context, c router.StoreConfig) (note string, err error) {
	p.storeURL, p.warns = c.URL.Reveal(), true
	address, err := p.existing()
	if errors.Is(err, fs.ErrNotExist) && (c.Migrate || !strings.Contains(c.URL.Reveal(), "migrate=never")) {
		path, _, _ := strings.Cut(strings.TrimPrefix(c.URL.Reveal(), sqliteScheme+"://"), "?")
		return path + " does not exist yet: the service creates it when it starts", nil
	}
	if err != nil {
		return "", err
	}
	err = p.use(ctx, address, func(s store) error { return p.ask(ctx, s.Validate) })
	makes := c.Migrate || address.Scheme == sqliteScheme && !strings.Contains(c.URL.Reveal(), "migrate=never")
	if errors.Is(err, stores.ErrNotMigrated) && makes {
		return "it answers, and its tables do not exist yet: the service creates them when it starts", nil
	}
	return "it answers, and its tables exist", err
}
