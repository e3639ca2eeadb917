package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

func (p *program) migrateCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "migrate", Short: "Create and check millpond's tables"},
		p.migrateUp(), p.migrateStatus(), p.migrateSQL())
}

var stepColumns = columns{
	{"STEP", "the number and the name of a migration step"},
	{"STATE", "applied; with --dry-run: already applied, or would be applied"},
}

func (p *program) migrateUp() *cobra.Command {
	var dryRun bool
	cmd := explained(&cobra.Command{
		Use:   "up",
		Short: "Apply the missing steps",
		Long: `Apply the missing steps. PostgreSQL and SQLite apply all of them or none. MySQL,
MariaDB and DynamoDB apply each statement by itself: if the command is interrupted, run it again
to go on. If several run at once, one applies the steps and the others wait. --timeout bounds the
time; the default is no bound.`,
		Args: noArguments,
	}, stepColumns, nil)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say which steps would be applied, and apply none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if dryRun {
			return p.withStore(p.migratePreview)(cmd, nil)
		}
		address, err := p.address()
		if err != nil {
			return err
		}
		return p.use(cmd.Context(), address, func(s store) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("timeout") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, p.timeout)
				defer cancel()
			}
			said := p.saySince("migrating")
			applied, err := s.Migrate(ctx)
			said()
			if err != nil {
				return err
			}
			if len(applied) == 0 {
				fmt.Fprintln(p.err, upToDate)
			}
			return p.steps(applied, len(s.Migrations()), "applied", "")
		})
	}
	return cmd
}

// stepName is the name of a step's file, without its ending.
func stepName(m stores.Migration) string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

// steps lists steps; those up to applied are in the database.
func (p *program) steps(steps []stores.Migration, applied int, done, missing string) error {
	l := p.newList(stepColumns)
	for _, m := range steps {
		state := missing
		if m.Version <= applied {
			state = done
		}
		l.add(stepOf(m, applied), stepName(m), state)
	}
	return l.close()
}

func (p *program) migratePreview(ctx context.Context, s store, _ []string) error {
	schema, err := p.schema(ctx, s)
	if err != nil {
		return err
	}
	if schema.broken() || schema.state == schemaNewer {
		return errors.New(schema.problem())
	}
	if err := p.steps(schema.steps, schema.applied, "already applied", "would be applied"); err != nil {
		return err
	}
	if schema.state == schemaCurrent {
		fmt.Fprintln(p.err, upToDate)
	}
	return nil
}

const upToDate = "nothing to do, the tables are up to date"

// statusRecord is the result of migrate status.
type statusRecord struct {
	State   string       `json:"state"` // current, older (or missing), newer
	Detail  string       `json:"detail,omitempty"`
	Version int          `json:"version"` // the newest step in the database, 0: none
	Steps   []stepRecord `json:"steps"`   // steps of this program
}

func (p *program) migrateStatus() *cobra.Command {
	return explained(&cobra.Command{
		Use:   "status",
		Short: "Check whether this program can use the tables",
		Args:  noArguments,
		RunE: p.withStore(func(ctx context.Context, s store, _ []string) error {
			schema, err := p.schema(ctx, s)
			if err != nil {
				return err
			}
			r := statusRecord{State: schema.state, Detail: redact(schema.problem(), p.url()), Version: schema.applied}
			for _, m := range schema.steps {
				r.Steps = append(r.Steps, stepOf(m, schema.applied))
			}
			if err := p.show(r, r.text); err != nil {
				return err
			}
			if r.Detail != "" {
				return errors.New(r.Detail)
			}
			return nil
		}),
	}, nil, exits{exitOK: "this program can use the tables", exitError: "it cannot use them, or error"})
}

func (r statusRecord) text(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, step := range r.Steps {
		state := "MISSING"
		if step.Applied {
			state = "applied"
		}
		fmt.Fprintf(table, "%04d %s\t%s\n", step.Version, step.Name, state)
	}
	_ = table.Flush() // writes to a buffer
	if later := r.Version - len(r.Steps); later > 0 {
		fmt.Fprintf(w, "and %d that this program does not know\n", later)
	}
	if r.State == schemaCurrent {
		fmt.Fprintln(w, "the tables are up to date")
	}
}

func (p *program) migrateSQL() *cobra.Command {
	var from int
	cmd := explained(&cobra.Command{
		Use:   "sql",
		Short: "Print the SQL of the steps, for another migration tool",
		Long: `Print the SQL of the steps, for another migration tool. Execute the steps in this order, each in
a transaction.

The command does not connect to a database. It uses the scheme of the store's URL, and the names
of tables and schema in the URL's parameters. MariaDB has the same steps as MySQL. On MySQL,
migrate up also creates stored procedures that save round trips; these are not printed.`,
		Example: `  millpond migrate sql --store postgres:// > millpond.sql
  millpond migrate sql --store 'mysql://?millpond_prefix=billing_' --from 2`,
		Args: noArguments,
	}, nil, nil)
	cmd.Flags().IntVar(&from, "from", 1, "begin with this `step`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if from < 1 {
			return usagef("--from is %d: steps are numbered from 1 on", from)
		}
		address, err := p.address()
		if err != nil {
			return err
		}
		steps, err := p.stepsOffline(cmd.Context(), address)
		if err != nil {
			return err
		}
		return p.printSQL(steps, from)
	}
	return cmd
}

// sqlRecord is a step of migrate sql.
type sqlRecord struct {
	migrationRecord
	SQL string `json:"sql"`
}

func (p *program) printSQL(steps []stores.Migration, from int) error {
	if from > len(steps) {
		return usagef("--from is %d: there are %d steps", from, len(steps))
	}
	l := p.newList(nil)
	for _, m := range steps[from-1:] {
		if p.output == outputTable {
			fmt.Fprintf(p.out, "-- %s\n%s\n", stepName(m), m.SQL)
			continue
		}
		l.add(sqlRecord{migrationRecord{m.Version, m.Name}, m.SQL})
	}
	return l.close()
}
