// Command payments shows what leases are for. A service charges orders at a payment provider,
// over HTTP: an effect that no transaction of the service's database can hold. Its processes
// are killed in every place, answers of the provider are lost, and the provider forgets which
// requests it has seen. In the end the books of both are compared, order by order.
//
// The service is in charge.go. Everything else is the rig around it.
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

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/stores/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: the parent, or one of the workers that the parent starts with the same
// arguments. It returns the exit code: 0 if the books agree.
func run(ctx context.Context, args []string, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "payments:", err)
		return 2
	case fleet.IsWorker():
		err = work(ctx, o, messages)
	default:
		err = supervise(ctx, o, out, messages)
	}
	if err != nil {
		fmt.Fprintln(messages, "payments:", strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

// work is a worker process: the service, fed by the parent.
func work(ctx context.Context, o options, messages io.Writer) error {
	orders, err := fleet.ConnectStdio()
	if err != nil {
		return err
	}
	store, err := sqlite.New(ctx, o.db, sqlite.Config{})
	if err != nil {
		return err
	}
	provider := &client{url: o.provider, announce: orders.Announce}
	if o.withoutLease {
		err = serveWithoutLease(ctx, store.DB(), orders, provider)
	} else {
		err = serve(ctx, store, orders, provider, places{orders}, logger(o, messages))
	}
	return errors.Join(err, orders.Close(), store.Close())
}

func logger(o options, messages io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler) // what became of the orders is in the table at the end
	}
	return slog.New(slog.NewTextHandler(messages, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// supervise is the parent: it is the provider, lets the fleet run, plays the operator, and
// compares the books.
func supervise(ctx context.Context, o options, out, messages io.Writer) error {
	store, err := prepareDatabase(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	provider, err := openProvider()
	if err != nil {
		return err
	}
	defer provider.close()
	fmt.Fprintf(messages, "SQLite, %s\nthe provider is at %s\n", o.db, provider.url)

	r := result{Orders: o.orders, withoutLease: o.withoutLease}
	operator := &operator{store: store, provider: provider}
	report, err := feed(ctx, o, provider, operator, messages)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err := errors.Join(err, operator.err); err != nil {
		return err
	}
	r.fleet(report)
	r.operator(operator)
	if err := r.compare(ctx, store.DB(), provider, o); err != nil {
		return err
	}
	if err := r.print(o, out); err != nil {
		return err
	}
	if !o.withoutLease && !r.right() {
		return errors.New("the books do not agree")
	}
	return nil
}
