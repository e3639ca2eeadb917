package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/retention"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// findingRecord is a line of doctor.
type findingRecord struct {
	Check    string          `json:"check"`
	Severity stores.Severity `json:"severity"`
	What     string          `json:"what"`
	Why      string          `json:"why"`
	Fix      string          `json:"fix,omitempty"`
}

var findingColumns = columns{
	{"SEVERITY", "error: the store or broker cannot be used like this; warning: a promise is weakened, or work has stopped; note: for information"},
	{"CHECK", "the name of the check; the lines below have the reason and the fix"},
	{"FINDING", "what was found, with the value"},
}

// doctor is one call of the command.
type doctor struct {
	*program
	role     string
	overdue  time.Duration
	secrets  []string // URLs
	findings []stores.Finding

	retention retention.Config
}

func (p *program) doctorCommand() *cobra.Command {
	d := &doctor{program: p}
	var file string
	cmd := explained(&cobra.Command{
		Use:   "doctor",
		Short: "Check a live store and broker for settings that weaken a promise",
		Long: `Check a live store, and with --config also the broker, for what weakens a promise of millpond:
durability, replicas, timeouts, poolers, clocks, tables that differ from the migrations, rights,
dead rows, and messages that wait for a decision. Each finding has its reason and the fix.

Nothing is changed. If the account may not read something, a note says so.`,
		Example: `  millpond doctor --store postgres://app@db/orders
  millpond doctor --config millpond.yaml -o json`,
		Args: noArguments,
	}, findingColumns, exits{
		exitOK: "nothing weakens a promise; there may be notes", exitError: "error: the check could not be made",
		exitFound: "there are warnings or errors",
	})
	cmd.Flags().StringVar(&file, "config", "", "the configuration `file` of the service: also checks its broker against the retry policy, and its store unless --store is given")
	cmd.Flags().StringVar(&d.role, "role", string(stores.RoleRuntime), "what the account is for: "+strings.Join(roleNames(), ", "))
	cmd.Flags().DurationVar(&d.overdue, "overdue", 5*time.Minute, "how late a retry, an output or the end of a transaction may be")
	complete(cmd, "role", roleNames()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(roleNames(), d.role) {
			return usagef("--role is %q: use %s", d.role, strings.Join(roleNames(), ", "))
		}
		if file != "" {
			if err := d.readConfig(cmd.Context(), file); err != nil {
				return err
			}
		}
		d.secrets = append(d.secrets, p.url())
		if err := p.withStore(d.examineStore)(cmd, nil); err != nil {
			return err
		}
		return d.report()
	}
	return cmd
}

func roleNames() []string {
	var names []string
	for _, r := range stores.Roles() {
		names = append(names, string(r))
	}
	return names
}

// readConfig reads the store from a configuration, and checks its broker.
func (d *doctor) readConfig(ctx context.Context, file string) error {
	c, err := router.LoadConfig(file)
	if err != nil {
		return err
	}
	d.secrets, d.retention = append(d.secrets, c.Broker.URL.Reveal()), c.SweeperConfig()
	if d.storeURL == "" {
		d.storeURL = c.Store.URL.Reveal()
	}
	for _, w := range c.Warnings() {
		d.add("config", stores.SeverityWarning, w.String(), "the service warns of it at its start", "change the configuration")
	}
	var broker brokers.Broker
	err = d.ask(ctx, func(ctx context.Context) (err error) {
		if broker, err = brokers.Open(ctx, c.Broker.URL.Reveal()); err != nil {
			return err
		}
		if pinger, ok := broker.(brokers.Pinger); ok {
			err = pinger.Ping(ctx)
		}
		return err
	})
	if broker != nil {
		defer func() { _ = broker.Close() }()
	}
	if err != nil {
		d.add("broker", stores.SeverityError, explain(err), "no message arrives", "check broker.url and whether the broker is there")
		return nil
	}
	d.examineBroker(&c, broker)
	return nil
}

func (d *doctor) add(check string, severity stores.Severity, what, why, fix string) {
	d.findings = append(d.findings, stores.Finding{Check: check, Severity: severity, What: what, Why: why, Fix: fix})
}

// fewDeliveries may be spent by restarts and rebalances alone.
const fewDeliveries = 10

func (d *doctor) examineBroker(c *router.Config, broker brokers.Broker) {
	if err := c.Unfit(broker); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			d.add("broker", stores.SeverityError, line, "the service refuses to start", "as it says")
		}
	}
	can := broker.Capabilities()
	switch limit := can.DeliveryLimit; {
	case !limit.Known:
		d.add("broker", stores.SeverityNote, fmt.Sprintf("%s does not tell after how many deliveries it drops a message", can.System),
			"a process that dies, a lost connection and a rebalance spend deliveries, too", "set the limit where queues are declared, with a dead-letter queue behind it")
	case 0 < limit.Max && limit.Max < fewDeliveries:
		d.add("broker", stores.SeverityWarning, fmt.Sprintf("%s drops or dead-letters a message after %d deliveries", can.System, limit.Max),
			"processes that die, lost connections and restarts of the broker spend deliveries, too: a message that never failed can be lost",
			fmt.Sprintf("raise the limit to %d or more, and declare a dead-letter queue", 2*fewDeliveries))
	}
	if h := can.ReplayHorizon; !h.Known || h.Max > 0 {
		d.add("broker", stores.SeverityNote, fmt.Sprintf("%s may deliver messages again %s", can.System, within(h)), "if the inbox deletes its rows before that, handlers run twice",
			"keep completed rows longer than topics and queues keep messages")
	}
}

func within(h brokers.ReplayHorizon) string {
	if !h.Known {
		return "for an unknown time"
	}
	return fmt.Sprintf("within %v", h.Max)
}

func (d *doctor) examineStore(ctx context.Context, s store, _ []string) error {
	examiner, ok := s.(stores.Examiner)
	if !ok {
		return errors.New("this kind of store cannot be examined")
	}
	findings, err := answer(ctx, d.program, func(ctx context.Context) ([]stores.Finding, error) {
		return examiner.Examine(ctx, stores.Examination{Now: d.now, Role: stores.Role(d.role), Overdue: d.overdue})
	})
	d.findings = append(d.findings, findings...)
	if err != nil {
		return err
	}
	return d.examineRetention(ctx, s)
}

// lags is how much older than their window completed messages may be.
const lags = 48 * time.Hour

// examineRetention reports consumers whose completed messages are kept much longer than needed.
func (d *doctor) examineRetention(ctx context.Context, s store) error {
	purges, ok := s.(stores.Purger)
	if !ok || d.retention.Off() {
		return nil
	}
	w, err := answer(ctx, d.program, purges.Watermarks)
	if err != nil {
		return err
	}
	for _, m := range w.Consumers {
		window := d.retention.WindowOf(m.Consumer)
		if m.Consumer.Service != d.retention.Service || window <= 0 {
			continue
		}
		const fix = "millpond purge --config … --dry-run says what keeps them; a consumer that is retired is purged with --silent"
		if m.PurgedThrough.IsZero() {
			d.add("retention", stores.SeverityNote, fmt.Sprintf("nothing of %s was ever purged", m.Consumer), fmt.Sprintf("it has a window of %s, and may have completed nothing older", window), fix)
			continue
		}
		if lag := w.Now.Sub(m.PurgedThrough.Add(-stores.ClockMargin)) - window; lag > lags {
			d.add("retention", stores.SeverityWarning, fmt.Sprintf("completed messages of %s are kept for %s longer than %s", m.Consumer, lag.Round(time.Hour), window),
				"the tables grow: no sweeper runs, or something keeps the rows", fix)
		}
	}
	return nil
}

// rank orders severities, the worst first.
var rank = map[stores.Severity]int{stores.SeverityError: 0, stores.SeverityWarning: 1, stores.SeverityNote: 2}

func (d *doctor) report() error {
	slices.SortStableFunc(d.findings, func(a, b stores.Finding) int { return rank[a.Severity] - rank[b.Severity] })
	l := d.newList(findingColumns)
	bad := 0
	for _, f := range d.findings {
		for _, text := range []*string{&f.What, &f.Why, &f.Fix} {
			for _, secret := range d.secrets {
				*text = redact(*text, secret)
			}
		}
		if f.Severity != stores.SeverityNote {
			bad++
		}
		l.add(findingRecord(f), string(f.Severity), f.Check, f.What)
		if l.table != nil {
			l.line([]string{"", "why", f.Why})
			if f.Fix != "" {
				l.line([]string{"", "fix", f.Fix})
			}
		}
	}
	if err := l.close(); err != nil {
		return err
	}
	if bad > 0 {
		return &exitingError{exitFound, fmt.Errorf("%s: see the fixes above", plural(bad, "finding"))}
	}
	fmt.Fprintln(d.err, "nothing was found that weakens a promise")
	return nil
}
