// Command pipeline runs three services in a row: a shop that takes orders over HTTP, a stock
// that reserves what was ordered, and a shipping that sends it. Between them are two brokers.
// Processes of all three are killed in the middle of their work; in the end every order that
// the shop has accepted was reserved once and shipped once.
//
// The services are in shop.go, stock.go and shipping.go. Everything else is the rig around them.
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
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: the parent, or one of the services that it starts. It returns the exit
// code.
func run(ctx context.Context, args []string, out, messages io.Writer) int {
	o, err := parseOptions(args, messages)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(messages, "pipeline:", err)
		return 2
	case fleet.IsWorker():
		err = work(ctx, o)
	default:
		err = supervise(ctx, o, out, messages)
	}
	if err != nil {
		fmt.Fprintln(messages, "pipeline:", strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}

// options are the flags.
type options struct {
	count         int
	kills         int
	seed          uint64
	timeout       time.Duration
	withoutOutbox bool
	brokers       endpoints

	// What the parent tells the services.
	role, dir, run, listen string
}

// endpoints are the brokers, by the topics that are on them.
type endpoints struct{ orders, shipments string }

// topics are named anew for each run: a real broker keeps those of earlier ones.
type topics struct{ orders, shipments string }

func (o options) topics() topics {
	return topics{"pipeline-orders-" + o.run, "pipeline-shipments-" + o.run}
}

func (o options) group(service string) string { return service + "-" + o.run }

// Names under which relays know their brokers.
const (
	toStock    = "stock"
	toShipping = "shipping"
)

// inFlight is how many messages one process has in hand.
const inFlight = 8

// quiet: what became of the orders is in the table at the end.
var quiet = slog.New(slog.DiscardHandler)

func parseOptions(args []string, messages io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&o.count, "orders-count", 1000, "how many orders the customers place")
	flags.IntVar(&o.kills, "kills", 30, "how many processes are killed, at the points where it hurts")
	flags.Uint64Var(&o.seed, "seed", 1, "decides which ones, and when")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait until everything is shipped")
	flags.BoolVar(&o.withoutOutbox, "without-outbox", false, "publish from the handlers, as most services do")
	flags.StringVar(&o.brokers.orders, "orders", "", "the `URL` of a broker between shop and stock, such as kafka://localhost:9092; otherwise the parent plays it")
	flags.StringVar(&o.brokers.shipments, "shipments", "", "the `URL` of a broker between stock and shipping, such as amqp://guest:guest@localhost")
	flags.StringVar(&o.role, "role", "", "for the processes that the parent starts")
	flags.StringVar(&o.dir, "dir", "", "the same")
	flags.StringVar(&o.run, "run", "", "the same")
	flags.StringVar(&o.listen, "listen", "", "the same")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(messages, "pipeline runs a shop, a stock and a shipping, and kills them.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return o, err
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w (-h shows all flags)", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag (-h shows all)", flags.Arg(0))
	case o.count < 1:
		return o, fmt.Errorf("--orders-count is %d: at least 1 is needed", o.count)
	case o.kills < 0:
		return o, fmt.Errorf("--kills is %d: it cannot be negative", o.kills)
	case o.timeout <= 0:
		return o, errors.New("--timeout takes a positive duration such as 5m")
	case (o.brokers.orders == "") != (o.brokers.shipments == ""):
		return o, errors.New("name both brokers, --orders and --shipments, or none")
	}
	return o, nil
}
