package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/internal/urlmux"
)

const storeVariable = "MILLPOND_STORE_URL"

// program is one call of the command.
type program struct {
	*console
	started bool // the arguments were accepted; see exitCode
	warns   bool // show the store's warnings

	storeURL string
	output   string
	timeout  time.Duration
}

// run runs the command and returns the exit code.
func run(ctx context.Context, c *console, args []string) int {
	p := &program{console: c}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(c.err, "millpond: "+printableLines(redact(explain(err), p.url())))
	}
	return exitCode(err, p.started)
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "millpond",
		Short: "Show and repair messages that have failed",
		Long: `Show and repair messages that have failed, or are in quarantine.

Results go to standard output, everything else to standard error.

Exit status; the help of each command has the details:
  0  done
  1  error
  2  usage error; nothing was done
  3  nothing matched; an empty list ends with 0
  4  only a part was done
  5  doctor found something`,
		Example: `  export MILLPOND_STORE_URL=postgres://app@db/orders
  millpond cause ls                              # what failed, by reason
  millpond msg ls --cause 5f2c0a91b7de           # the messages of one cause
  millpond msg show 4711                         # one of them, with its payload and history
  millpond msg retry --cause 5f2c0a91b7de        # after the fix`,
		Args:          knownCommand,
		RunE:          needCommand,
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			if !slices.Contains(outputs, p.output) {
				return usagef("--output is %q: use %s", p.output, strings.Join(outputs, ", "))
			}
			if p.timeout <= 0 {
				return usagef("--timeout is %v: use a positive duration such as 30s", p.timeout)
			}
			p.started = true
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() { // the flags may belong to the unknown command
			err = cmp.Or(knownCommand(cmd, args), err)
		}
		return err
	})
	flags := root.PersistentFlags()
	flags.StringVar(&p.storeURL, "store", "", "`URL` of the store: postgres://…, mysql://…, dynamodb://… or sqlite://…; default: "+storeVariable)
	flags.StringVarP(&p.output, "output", "o", outputTable, "`format` of results: table for people; json or jsonl for programs, with exact times and numbers")
	flags.DurationVar(&p.timeout, "timeout", 30*time.Second, "how long the store may take for one answer")
	complete(root, "output", outputs...)
	root.AddCommand(p.messageCommand(), p.quarantineCommand(), p.outboxCommand(), p.causeCommand(), p.statsCommand(), p.auditCommand(),
		p.relayCommand(), p.purgeCommand(), p.eraseCommand(), p.migrateCommand(), p.rolesCommand(), p.doctorCommand(), p.configCommand(), p.versionCommand(), p.manCommand())
	takeOnce(root)
	return root
}

// complete offers a flag's values to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag, or it was registered twice
	}
}

func (p *program) url() string {
	if p.storeURL != "" {
		return p.storeURL
	}
	return p.env(storeVariable)
}

// withStore returns the function of a command that needs the store.
func (p *program) withStore(do func(ctx context.Context, s store, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		address, err := p.existing()
		if err != nil {
			return err
		}
		return p.use(cmd.Context(), address, func(s store) error { return do(cmd.Context(), s, args) })
	}
}

// use opens a store, and closes it after do.
func (p *program) use(ctx context.Context, address *url.URL, do func(store) error) (err error) {
	s, err := answer(ctx, p, func(ctx context.Context) (store, error) { return p.open(ctx, address.String()) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if logging, ok := s.(interface{ SetLogger(l *slog.Logger) }); ok && !p.warns {
		logging.SetLogger(slog.New(slog.DiscardHandler)) // the service logs them at its start
	}
	return do(s)
}

// address returns the URL of the store. Only migrate up migrates it.
func (p *program) address() (*url.URL, error) {
	if p.url() == "" {
		return nil, usagef("which store? Give its URL with --store or in %s", storeVariable)
	}
	u, err := url.Parse(p.url())
	if err != nil { // its text may quote a password
		return nil, usagef("the store's URL cannot be parsed: %s", urlmux.FixUnparsed)
	}
	if u.Scheme == sqliteScheme {
		if query, err := url.ParseQuery(u.RawQuery); err == nil { // otherwise the store reports the error
			query.Set("migrate", "never")
			u.RawQuery = query.Encode()
		}
	}
	return u, nil
}

const (
	sqliteScheme = "sqlite"
	fixFile      = "check its path, or make it with millpond migrate up"
)

// existing is address for a store that must exist: opening an SQLite file would create it, and so
// hide a misspelt name.
func (p *program) existing() (*url.URL, error) {
	u, err := p.address()
	if err != nil || u.Scheme != sqliteScheme {
		return u, err
	}
	if u.Host+u.Path == "" {
		return nil, usagef("the store's URL names no file: write sqlite://file.db, or sqlite:///path/file.db")
	}
	if _, err := os.Stat(u.Host + u.Path); err != nil {
		return nil, fmt.Errorf("the store: %w: %s", err, fixFile)
	}
	return u, nil
}

// answer returns the result of one call of the store, within its timeout.
func answer[T any](ctx context.Context, p *program, call func(context.Context) (T, error)) (found T, err error) {
	err = p.ask(ctx, func(ctx context.Context) (err error) {
		found, err = call(ctx)
		return err
	})
	return found, err
}

// ask makes one call of the store, within its timeout.
func (p *program) ask(ctx context.Context, call func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	err := call(bounded)
	if err != nil && bounded.Err() != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no answer from the store within %v, which --timeout changes: %w", p.timeout, err)
	}
	return err
}
