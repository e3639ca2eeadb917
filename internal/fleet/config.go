package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"time"
)

// Message is what the source publishes. The parent changes nothing in it.
type Message struct {
	Topic    string // which subscription of the worker gets it
	UUID     string
	Metadata map[string]string
	Payload  []byte

	// Delivery.Key, NativeID and Undecodable of the brokers contract. Undecodable
	// is the error's text, "" if the message could be read.
	Key         []byte
	NativeID    string
	Undecodable string
}

// Config configures [Run]. Source and Command are required; zero values mean the
// defaults named at each field.
type Config struct {
	// Source gives the messages, once. It is read in a goroutine of its own, only
	// as fast as deliveries get free. An error ends the publishing: what was
	// published before is still settled, then Run returns the error.
	Source iter.Seq2[Message, error]

	// Command returns the command of a worker process, for each start anew. Its
	// Stdin and Stdout must be unset. It must not be bound to a context.
	Command func(worker int) *exec.Cmd

	Workers   int // how many processes; default 4
	InFlight  int // unsettled deliveries per process; default 8
	Unsettled int // messages and duplicates in the parent's hands; default 4 × Workers × InFlight

	// Seed of everything the parent decides.
	Seed uint64
	// Duplicates is the probability that a message is delivered once more although
	// it runs or was settled, 0 to 1.
	Duplicates float64
	// Apart is how many deliveries at most lie between a message and its duplicate.
	// Half of them come at once regardless, so that both run together. Default 500.
	Apart int
	// Reorder is from how many messages the next one is drawn; default 1, in order.
	Reorder int
	// Kills are inflicted as scheduled, or not at all if the run is over before.
	Kills []Kill
	// Ordered delivers the messages of one Message.Key, in each topic, one at a time and
	// in the order of publishing: the next one when the one before is acked. Reorder
	// must be 1.
	Ordered bool
	// DeliveryLimit is how often a message is delivered, for whatever reason, before
	// it is dropped, as many brokers do. Default: no limit.
	DeliveryLimit int
	// Visibility is how long a worker may keep a delivery before another worker
	// gets it too, as in brokers that hide instead of hand over. Default: for ever.
	Visibility time.Duration

	// MaxExits is how often in a row one worker may exit by itself without settling
	// anything before Run gives up. Default 5.
	MaxExits int
	// StopTimeout is how long a worker may take to leave when it is asked to,
	// before it is killed. Default 30 s.
	StopTimeout time.Duration

	// AtRest, if set, is asked again and again, on a goroutine of its own, once
	// everything is settled: the workers stay until it reports true. It should heed ctx.
	AtRest func(ctx context.Context) bool

	// Observe is called for each event, in order, by the goroutine that decides
	// everything: it must be fast.
	Observe func(Event)
	// Progress is called by the same goroutine with the state so far, every
	// ProgressEvery (default 200 ms).
	Progress      func(Report)
	ProgressEvery time.Duration
}

func (c *Config) setDefaults() {
	setDefault(&c.Workers, 4)
	setDefault(&c.InFlight, 8)
	setDefault(&c.Unsettled, 4*c.Workers*c.InFlight)
	setDefault(&c.Apart, 500)
	setDefault(&c.Reorder, 1)
	setDefault(&c.MaxExits, 5)
	setDefault(&c.StopTimeout, 30*time.Second)
	setDefault(&c.ProgressEvery, 200*time.Millisecond)
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) validate() error {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("fleet: Config.Source is required"))
	}
	if c.Command == nil {
		errs = append(errs, errors.New("fleet: Config.Command is required"))
	}
	if c.Duplicates < 0 || c.Duplicates > 1 {
		errs = append(errs, fmt.Errorf("fleet: Config.Duplicates is %g, a probability from 0 to 1 is needed", c.Duplicates))
	}
	for _, field := range []struct {
		name  string
		value int
	}{
		{"Workers", c.Workers},
		{"InFlight", c.InFlight},
		{"Unsettled", c.Unsettled},
		{"Apart", c.Apart},
		{"Reorder", c.Reorder},
		{"DeliveryLimit", c.DeliveryLimit},
		{"MaxExits", c.MaxExits},
	} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("fleet: Config.%s is %d, a positive number is needed", field.name, field.value))
		}
	}
	if c.Ordered && c.Reorder > 1 {
		errs = append(errs, fmt.Errorf("fleet: Config.Ordered with Reorder %d: leave Reorder 1", c.Reorder))
	}
	for i, kill := range c.Kills {
		if _, known := signals[kill.Kind]; !known {
			errs = append(errs, fmt.Errorf("fleet: Config.Kills[%d].Kind is %q, which this system cannot do", i, kill.Kind))
		}
	}
	return errors.Join(errs...)
}

// workerEnv marks a process as a worker and holds its index.
const workerEnv = "MILLPOND_FLEET_WORKER"

// IsWorker reports whether this process was started as a worker by [Run].
func IsWorker() bool { return os.Getenv(workerEnv) != "" }

// Self returns a Command that starts the running program again, with these
// arguments. What workers write to standard error goes to the parent's.
func Self(args ...string) func(worker int) *exec.Cmd {
	return func(int) *exec.Cmd {
		path, err := os.Executable()
		if err != nil {
			path = os.Args[0] // Start will say what is wrong with it
		}
		cmd := exec.Command(path, args...) //nolint:noctx // the parent ends it, in its own way
		cmd.Stderr = os.Stderr
		return cmd
	}
}
