// Command quickstart shows what millpond is for. An inventory service deducts orders
// from its stock, in several processes. They are killed in the middle of their work,
// their deliveries come again, and producers send events twice; in the end the
// database is compared with the events, one by one.
//
// The service is in inventory.go. Everything else is the rig around it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/millpond-go/millpond/internal/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: the parent, or one of the workers that the parent starts with
// the same arguments. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, errHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "quickstart:", err)
		return 2
	case fleet.IsWorker():
		err = work(ctx, o, messages)
	default:
		err = supervise(ctx, o, in, out, messages)
	}
	if err != nil {
		fmt.Fprintln(messages, "quickstart:", strings.Join(strings.Fields(err.Error()), " "))
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
	db, err := openDatabase(ctx, o)
	if err != nil {
		return err
	}
	if o.withoutInbox {
		err = serveWithoutInbox(ctx, orders, db.deductPlainly)
	} else {
		err = serve(ctx, db.Store(), orders, db.deductOnce, logger(o, messages))
	}
	return errors.Join(err, orders.Close(), db.Close())
}

func logger(o options, messages io.Writer) *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler) // what became of the events is in the table at the end
	}
	return slog.New(slog.NewTextHandler(messages, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// supervise is the parent: it prepares the database, lets the fleet run and checks
// what it has done.
func supervise(ctx context.Context, o options, in io.Reader, out, messages io.Writer) error {
	events, err := openInput(o, in)
	if err != nil {
		return err
	}
	if closer, ok := events.(io.Closer); ok {
		defer func() { _ = closer.Close() }()
	}
	db, err := prepareDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	before, err := readLedger(ctx, db)
	if err != nil {
		return err
	}
	fmt.Fprintf(messages, "%s\n%s → %d workers\n", db, events, o.workers)

	report, err := feed(ctx, o, events, db, messages)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; run it again to go on where it was")
	}
	if err != nil {
		return err
	}
	after, err := readLedger(ctx, db)
	if err != nil {
		return err
	}
	result, err := compare(events, before, after)
	if err != nil {
		return err
	}
	result.Fleet(o, db, report)
	if err := result.Print(o, out); err != nil {
		return err
	}
	if !o.withoutInbox && !result.Right() {
		return errors.New("the database does not say what the events say")
	}
	return nil
}
