package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// purgeRecord is a line of purge.
type purgeRecord struct {
	Kind stores.PurgeKind `json:"kind"`
	consumerRecord
	Before    time.Time `json:"before,omitzero"`
	Rows      int       `json:"rows"`
	Purgeable int       `json:"purgeable"`
	DryRun    bool      `json:"dry_run"`
	Kept      string    `json:"kept,omitempty"`
}

var purgeColumns = columns{
	{"KIND", "the kind of rows"},
	consumerColumn,
	{"BEFORE", "rows up to this time may be purged"},
	{"ROWS", "how many rows there are"},
	{"OLD", "how many of them were purged, or would be with --dry-run"},
	{"KEPT BECAUSE", "why no rows, or not all old ones, are purged"},
}

// purgeCall is one call of the command.
type purgeCall struct {
	*program
	decision
	windows     retention.Windows
	service     string
	file        string
	options     retention.Options
	rate        int
	acceptStale string
	acceptFor   time.Duration
}

func (p *program) purgeCommand() *cobra.Command {
	c := &purgeCall{program: p}
	cmd := explained(&cobra.Command{
		Use:   "purge",
		Short: "Delete completed messages and other old rows, once",
		Long: `Delete, once, completed messages and other rows that are older than their windows. Use it from
cron if no service has a section retention, and for retired consumers.

A purged message may run again when it is redelivered: the window must be longer than the time
for which the broker keeps or replays messages. A consumer that has completed nothing for a day is
left alone, because its messages in flight may be delivered when it is back; --silent purges it
too. A service's own sweeper may run at the same time.`,
		Example: `  millpond purge --config millpond.yaml --dry-run
  millpond purge --service billing --window 168h --yes -o json
  millpond purge --service billing --handler retired --window 1h --silent
  millpond purge --accept-stale billing/invoice --for 2h`,
		Args: noArguments,
	}, purgeColumns, exits{exitOK: "done; there may have been nothing to purge", exitError: "error; some rows may be purged"})
	f := cmd.Flags()
	f.StringVar(&c.file, "config", "", "the configuration `file` of the service: its section retention, and its store unless --store is given")
	f.StringVar(&c.service, "service", "", "the service, if there is no file")
	f.StringVar(&c.options.Handler, "handler", "", "only this consumer of the service")
	for _, w := range windowsOf(&c.windows) {
		f.DurationVar(w.of, w.name, 0, w.usage)
	}
	f.IntVar(&c.rate, "rate", 0, "at most this many rows a second (default: the file's, or 5000)")
	f.BoolVar(&c.options.Silent, "silent", false, "also purge consumers that have completed nothing for a day")
	f.BoolVar(&c.options.DryRun, "dry-run", false, "show what would be purged, and delete nothing")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	f.StringVar(&c.acceptStale, "accept-stale", "", "purge nothing; let all stale deliveries of this `consumer` (service/handler) go to quarantine for the time of --for")
	f.DurationVar(&c.acceptFor, "for", time.Hour, "how long --accept-stale lasts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.acceptStale != "" {
			return p.withStore(c.accept)(cmd, nil)
		}
		config, err := c.config()
		if err != nil {
			return err
		}
		return p.withStore(func(ctx context.Context, s store, _ []string) error { return c.purge(ctx, s, config) })(cmd, nil)
	}
	return cmd
}

// window is one window that a flag sets.
type window struct {
	of          *time.Duration
	name, usage string
}

func windowsOf(c *retention.Windows) []window {
	return []window{
		{&c.Window, "window", "how long completed messages are kept"},
		{&c.Failed, "failed", "how long failed messages are kept, at least window"},
		{&c.Discarded, "discarded", "how long discarded messages are kept"},
		{&c.Quarantined, "quarantined", "how long messages in quarantine are kept"},
		{&c.Published, "published", "how long the outbox's history is kept"},
		{&c.Audited, "audited", "how long the audit is kept"},
	}
}

// config is the file's, with the flags on top.
func (c *purgeCall) config() (config retention.Config, err error) {
	if c.file != "" {
		file, err := router.LoadConfig(c.file)
		if err != nil {
			return config, err
		}
		config, c.service = file.SweeperConfig(), file.Service
		if c.url() == "" {
			c.storeURL = file.Store.URL.Reveal()
		}
	}
	if c.service == "" {
		return config, usagef("whose messages? Give --service or --config")
	}
	config.Service = c.service
	flags := windowsOf(&c.windows)
	for i, w := range windowsOf(&config.Windows) {
		if own := *flags[i].of; own != 0 {
			*w.of = own
		}
	}
	if config.Off() {
		return config, usagef("how long are rows kept? Give --window, another window, or --config with a section retention")
	}
	if c.rate != 0 {
		config.Rate = c.rate
	}
	config.Retired = c.options.Silent
	config.Logger = slog.New(slog.DiscardHandler)
	if err := config.Validate(); err != nil {
		return config, usagef("%s", err)
	}
	return config, nil
}

var errNoPurge = errors.New("this store cannot purge")

func (c *purgeCall) purge(ctx context.Context, s store, config retention.Config) error {
	purges, ok := s.(retention.Store)
	if !ok {
		return errNoPurge
	}
	sweeper, err := retention.New(purges, config)
	if err != nil {
		return err
	}
	if !c.options.DryRun {
		if err := c.confirm(ctx, c.yes, "delete what is old of "+config.Service); err != nil {
			return err
		}
	}
	looked, deleted := c.newProgress("looked at", 0, true), c.newProgress("deleted", 0, true)
	c.options.Progress = func(_ stores.PurgeKind, rows int, deleting bool) {
		if deleting {
			deleted.show(rows)
			return
		}
		looked.show(rows)
	}
	result, err := sweeper.Pass(ctx, c.options)
	looked.end()
	deleted.end()
	l := c.newList(purgeColumns)
	for _, r := range result.Found {
		name := ""
		if r.Consumer != (stores.Consumer{}) {
			name = r.Consumer.String()
		}
		before := ""
		if !r.Before.IsZero() {
			before = c.ago(r.Before)
		}
		l.add(purgeRecord{r.Kind, consumerOf(r.Consumer), r.Before.UTC(), r.Rows, r.Purgeable, c.options.DryRun, r.Kept},
			string(r.Kind), name, before, strconv.Itoa(r.Rows), strconv.Itoa(r.Purgeable), r.Kept)
	}
	if err := errors.Join(l.close(), err); err != nil {
		return err
	}
	for _, kind := range stores.PurgeKinds() {
		if n := result.Deleted[kind]; n > 0 {
			fmt.Fprintf(c.err, "%s rows deleted: %s\n", count(n), kind)
		}
	}
	return nil
}

// accept lets a flood of stale deliveries pass to quarantine.
func (c *purgeCall) accept(ctx context.Context, s store, _ []string) error {
	purges, ok := s.(stores.Purger)
	service, handler, named := strings.Cut(c.acceptStale, "/")
	switch {
	case !ok:
		return errNoPurge
	case !named:
		return usagef("--accept-stale is %q: name a consumer as service/handler", c.acceptStale)
	case c.acceptFor <= 0:
		return usagef("--for is %v: use a positive duration such as 1h", c.acceptFor)
	}
	err := c.ask(ctx, func(ctx context.Context) error {
		return purges.AcceptStale(ctx, stores.Consumer{Service: service, Handler: handler}, c.acceptFor)
	})
	if errors.Is(err, stores.ErrChanged) {
		return nothingf("the store knows no consumer %s", c.acceptStale)
	}
	if err == nil {
		fmt.Fprintf(c.err, "stale deliveries of %s go to quarantine for %s\n", c.acceptStale, c.acceptFor)
	}
	return err
}
