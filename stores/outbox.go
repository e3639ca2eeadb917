package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// ErrInvalidOutput: no store accepts the output.
	ErrInvalidOutput = errors.New("stores: invalid output")
	// ErrUnordered: the database does not number rows in the order of their commits, so outputs
	// cannot have order keys.
	ErrUnordered = errors.New("stores: this database keeps no order of outputs")
)

// Output is a message that is written in a transaction and published after it. Stores do not
// retain its slices and maps.
type Output struct {
	ID          string // of the message, 1 to MaxIDBytes bytes
	Destination string // the name of a publisher of the relay, at most MaxDestinationBytes; "" is a name, too
	Topic       string // 1 to MaxTopicBytes
	Type        string // the kind of message, for people and readers of the table; may be empty
	OrderKey    []byte // outputs with the same destination and order key are published in the order of their commits; empty: none
	Codec       string // the codec of metadata and payload; "": none
	Metadata    map[string]string
	Payload     []byte
	TraceParent TraceParent
}

// MaxDestinationBytes is the length of the longest name of a destination, and of the longest
// type, that every store takes.
const MaxDestinationBytes = 200

// Validate returns an error that wraps [ErrInvalidOutput] and names every field that no
// store accepts.
func (o *Output) Validate() error {
	var errs []error
	text := func(name, value string, least, most int) {
		switch n := len(value); {
		case n < least:
			errs = append(errs, fmt.Errorf("the %s is empty", name))
		case n > most:
			errs = append(errs, fmt.Errorf("the %s has %d bytes: at most %d are allowed", name, n, most))
		}
	}
	text("message id", o.ID, 1, MaxIDBytes)
	text("order key", string(o.OrderKey), 0, MaxOrderKeyBytes)
	for _, field := range []struct {
		name, value string
		least, most int
	}{{"topic", o.Topic, 1, MaxTopicBytes}, {"destination", o.Destination, 0, MaxDestinationBytes}, {"type", o.Type, 0, MaxDestinationBytes}} {
		text(field.name, field.value, field.least, field.most)
		if !utf8.ValidString(field.value) || strings.Contains(field.value, "\x00") {
			errs = append(errs, fmt.Errorf("the %s is %q: use valid UTF-8 without NUL", field.name, field.value))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrInvalidOutput, errors.Join(errs...))
	}
	return nil
}

// PublisherConfig configures a publisher that writes outputs in a transaction of the
// caller's. The zero value is ready to use.
type PublisherConfig struct {
	// Destination is the name under which the relay knows the publisher for these messages.
	// Outputs for a name that the relay does not know wait, unless the store was told to refuse
	// them (OutputChecker). A router.Service tells its own store.
	Destination string
	// OrderKey returns the order key of an output, which is complete except for its type; nil
	// means none. No codec encodes the key.
	OrderKey func(Output) []byte
	// Type returns Output.Type.
	Type func(Output) string
	// Last promises that Publish is the transaction's last statement before COMMIT, and that
	// other writers of the order key wait for this transaction, for example by locking the row
	// that the key names. Then Publish does not take the order key's own lock.
	Last bool
	// Encode passes metadata and payload through a codec, and returns its name. Package
	// middleware/outbox makes one of a middleware.Codec.
	Encode func(context.Context, Output) (Output, error)
}

// OutboxBuckets is the number of parts of an outbox. A relay publishes the parts that it has
// leased. An order key belongs to one part.
const OutboxBuckets = 64

// Outbox is what a relay needs from a store. It is safe for concurrent use. Errors wrap
// ErrUnavailable, ErrNotMigrated, ErrSchemaNewer or ErrClosed.
type Outbox interface {
	Leases

	// Pending returns outputs to be published, the smallest number first. It locks nothing. It
	// leaves out what the query says, and what waits behind a failed output that blocks its order
	// key.
	Pending(ctx context.Context, q PendingQuery) (Pending, error)

	// Settle records the results of outputs, in few commits. It may be repeated, and skips
	// outputs that no longer exist.
	Settle(ctx context.Context, s Settlement) error
}

// PendingQuery asks for outputs. Limit must be positive.
type PendingQuery struct {
	Buckets []int64
	After   int64 // a number
	Limit   int
	Bytes   int // of payloads and metadata together, roughly; one output is always returned

	ExceptNumbers      []int64
	ExceptDestinations []string
	ExceptKeys         []OutputKey

	Blocked bool // return Pending.Blocked
}

// OutputChecker is implemented by stores that can check the outputs of producers, whose
// publishers have no configuration of destinations.
type OutputChecker interface {
	// CheckOutputs makes the store call check before it writes an output. An error refuses the
	// output, wrapped in ErrInvalidOutput; see middleware.Outputs.Check. nil removes the check.
	CheckOutputs(check func(destination, topic string) error)
}

// OutputKey is the scope of an order: an order key of one destination.
type OutputKey struct{ Destination, OrderKey string }

// Pending is the answer to a PendingQuery.
type Pending struct {
	Outputs []PendingOutput
	More    bool // there may be more than the limits allowed
	// Through is the largest number up to which the answer is complete: every other output up to
	// it was left out on request, has been settled, or will never be committed. Stores cannot
	// know that for transactions that begin to write at this moment; the relay reads again for
	// them.
	Through int64
	// Blocked are the order keys in these buckets that failed outputs block, read before Outputs.
	Blocked []OutputKey
}

// PendingOutput is an output in the outbox.
type PendingOutput struct {
	Output

	Number    int64 // in the order of the commits, for outputs with the same order key
	Bucket    int64
	Attempts  int // refused attempts to publish it
	CreatedAt time.Time
	Err       error // why the metadata cannot be read, or nil
}

// Settlement has the results of some outputs.
type Settlement struct {
	Published []int64 // their numbers
	// CreatedAt has the creation times of Published, from Pending. Outputs with another time are
	// skipped: they got the number after a failover lost commits. nil: not compared.
	CreatedAt []time.Time
	// Keep moves published outputs to the history instead of deleting them.
	Keep    bool
	Refused []RefusedOutput
}

// RefusedOutput is an output that its destination refused.
type RefusedOutput struct {
	Number    int64
	CreatedAt time.Time // as in Settlement; zero: not compared
	Attempts  int       // from now on
	Error     string
	Failed    bool // refused for good: it becomes a dead letter
	Blocks    bool // outputs with its order key wait until it is no longer a dead letter
}

// OutboxWaker is implemented by stores whose database can signal commits to relays in other
// processes. Relays poll as well.
type OutboxWaker interface {
	// WakeRelays signals all listeners, outside any other transaction.
	WakeRelays(ctx context.Context, w OutboxWake) error
	// ListenOutbox calls wake once when it listens, and then for each signal. It returns an error
	// when ctx ends or the connection is lost, never nil, and one that wraps
	// errors.ErrUnsupported if this connection cannot receive signals. wake must not block.
	ListenOutbox(ctx context.Context, wake func(OutboxWake)) error
}

// OutboxWake says that outputs were committed.
type OutboxWake struct {
	Sender int64 // the sender of the signal
	Number int64 // the smallest number; 0: unknown
}

// Leases give exclusive rights to numbered units of a name, for a time by the database's clock.
// They serve every task that needs one owner per store. They are safe for concurrent use. Errors
// wrap ErrUnavailable, ErrNotMigrated, ErrSchemaNewer or ErrClosed.
type Leases interface {
	// Lease renews the owner's leases, and takes free ones. Leases of others are never taken
	// before they have expired.
	Lease(ctx context.Context, r LeaseRequest) (Leased, error)
	// Unlease ends leases of the owner.
	Unlease(ctx context.Context, name, owner string, units []int64) error
}

// LeaseRequest asks for leases.
type LeaseRequest struct {
	Name  string        // the name of the units, at most MaxDestinationBytes
	Owner string        // unique to the caller, at most MaxDestinationBytes
	Units []int64       // those that the owner has, or would take if they are free, in this order
	Limit int           // free ones are taken while the owner has fewer
	TTL   time.Duration // from now on
}

// Leased is the result of a LeaseRequest.
type Leased struct {
	Units []int64 // the owner's units now
	Live  int     // leased units of the name, of all owners
}
