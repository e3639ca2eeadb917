package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// migrationRecord is a step of migrate up.
type migrationRecord struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func (p *program) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create and check millpond's tables",
		Args:  knownCommand,
		RunE:  needCommand,
	}
	cmd.AddCommand(p.migrateUp(), p.migrateStatus(), p.migrateSQL())
	return cmd
}

func (p *program) migrateUp() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the missing steps",
		Long: `Apply the missing steps, all of them or none. Several may run at once: one applies
them, the others wait. It takes the time it needs, unless --timeout is given.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the steps that this program has, and say whether some are missing")
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
			applied, err := s.Migrate(ctx)
			if err != nil {
				return err
			}
			return p.steps(applied, "applied", "nothing to do, the tables are up to date")
		})
	}
	return cmd
}

// steps lists migrations.
func (p *program) steps(steps []stores.Migration, what, none string) error {
	l := p.newList("STEP", "STATE")
	for _, m := range steps {
		l.add(migrationRecord{m.Version, m.Name}, stepName(m), what)
	}
	if len(steps) == 0 {
		fmt.Fprintln(p.err, none)
	}
	return l.close()
}

func stepName(m stores.Migration) string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

func (p *program) migratePreview(ctx context.Context, s store, _ []string) error {
	err := p.ask(ctx, s.Validate)
	switch {
	case err == nil:
		return p.steps(nil, "", "nothing to do, the tables are up to date")
	case errors.Is(err, stores.ErrNotMigrated):
		fmt.Fprintf(p.err, "steps are missing: %s\n", printable(redact(err.Error(), p.url())))
		return p.steps(s.Migrations(), "applied if missing", "")
	}
	return err
}

// statusRecord is what migrate status answers.
type statusRecord struct {
	State  string            `json:"state"` // current, older (or missing), newer
	Detail string            `json:"detail,omitempty"`
	Steps  []migrationRecord `json:"steps"` // that this program has
}

func (p *program) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether this program can use the tables; ends with 1 if not",
		Args:  cobra.NoArgs,
		RunE: p.withStore(func(ctx context.Context, s store, _ []string) error {
			err := p.ask(ctx, s.Validate)
			r := statusRecord{State: "current"}
			switch {
			case err == nil:
			case errors.Is(err, stores.ErrNotMigrated):
				r.State, r.Detail = "older", err.Error()
			case errors.Is(err, stores.ErrSchemaNewer):
				r.State, r.Detail = "newer", err.Error()
			default:
				return err
			}
			r.Detail = redact(r.Detail, p.url())
			for _, m := range s.Migrations() {
				r.Steps = append(r.Steps, migrationRecord{m.Version, m.Name})
			}
			return errors.Join(p.show(r, r.text), err)
		}),
	}
}

func (r statusRecord) text(w io.Writer) {
	fmt.Fprintln(w, cmp.Or(printable(r.Detail), "the tables are up to date, with these steps:"))
	for _, step := range r.Steps {
		fmt.Fprintf(w, "  %04d  %s\n", step.Version, step.Name)
	}
}

func (p *program) migrateSQL() *cobra.Command {
	var from int
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the SQL of the steps, for another migration tool",
		Long: `Print the SQL of the steps, for another migration tool. Each step is to be executed in a
transaction, in this order.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().IntVar(&from, "from", 1, "begin with this `step`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if from < 1 {
			return usagef("--from is %d: steps are numbered from 1 on", from)
		}
		address, err := p.address()
		if err != nil {
			return err
		}
		return p.elsewhere(address, func(address *url.URL) error {
			return p.use(cmd.Context(), address, func(s store) error {
				return p.printSQL(s.Migrations(), from)
			})
		})
	}
	return cmd
}

// elsewhere gives an SQLite store an empty directory, because to open its file would
// create it.
func (p *program) elsewhere(address *url.URL, do func(*url.URL) error) (err error) {
	if address.Scheme != sqliteScheme {
		return do(address)
	}
	dir, err := os.MkdirTemp("", "millpond-migrate-sql-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := *address
	file.Host, file.Path, file.RawPath = "", filepath.ToSlash(filepath.Join(dir, "empty.db")), ""
	return do(&file)
}

// sqlRecord is a step of migrate sql.
type sqlRecord struct {
	migrationRecord
	SQL string `json:"sql"`
}

func (p *program) printSQL(steps []stores.Migration, from int) error {
	if from > len(steps) {
		return nothingf("there are only %d steps", len(steps))
	}
	l := p.newList()
	for _, m := range steps[from-1:] {
		if p.output == outputTable {
			fmt.Fprintf(p.out, "-- %s\n%s\n", stepName(m), m.SQL)
			continue
		}
		l.add(sqlRecord{migrationRecord{m.Version, m.Name}, m.SQL})
	}
	return l.close()
}
