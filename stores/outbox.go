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
	// ErrInvalidOutput: no store takes the output, whoever says it.
	ErrInvalidOutput = errors.New("stores: invalid output")
	// ErrUnordered: the database numbers rows in another order than that of their commits, so
	// that outputs cannot have order keys.
	ErrUnordered = errors.New("stores: this database keeps no order of outputs")
)

// Output is a message that is written in a transaction and published after it. Stores keep
// none of its slices and maps.
type Output struct {
	ID          string // of the message, 1 to MaxIDBytes bytes
	Destination string // which of the relay's publishers publishes it, at most MaxDestinationBytes; "" names one, too
	Topic       string // 1 to MaxTopicBytes
	Type        string // what kind of message it is, for people and for readers of the table; may be empty
	OrderKey    []byte // outputs to one destination with the same are published in the order of their commits; empty: none
	Codec       string // that metadata and payload went through; "": none
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
	// A name that the relay does not know is found out there, and the outputs wait, unless the
	// store was told what to refuse (OutputChecker). A router.Service tells its own.
	Destination string
	// OrderKey returns the order key of an output that has everything else but its type; nil
	// for none. The key is written as it is, whatever the codec.
	OrderKey func(Output) []byte
	// Type returns Output.Type.
	Type func(Output) string
	// Last promises that Publish is the transaction's last statement before COMMIT, and that
	// who writes to an order key at the same time waits for this transaction, as by a lock of
	// the row that the key names. Then Publish does not take the order key's own lock.
	Last bool
	// Encode passes metadata and payload through a codec, and names it. Package
	// middleware/outbox makes one of a middleware.Codec.
	Encode func(context.Context, Output) (Output, error)
}

// OutboxBuckets is how many parts an outbox has. A relay publishes those that it has leased,
// and an order key is in one of them.
const OutboxBuckets = 64

// Outbox is what a relay needs of a store. It is safe for concurrent use.
type Outbox interface {
	Leases

	// Pending returns outputs that are to be published, the smallest number first. It locks
	// nothing. It is told what to leave out, and leaves out by itself what waits behind a
	// failed output that blocks its order key.
	Pending(ctx context.Context, q PendingQuery) (Pending, error)

	// Settle writes down what became of outputs, in few commits. It may be repeated, and
	// leaves alone what is there no more.
	Settle(ctx context.Context, s Settlement) error
}

// PendingQuery asks for outputs. Limit must be positive.
type PendingQuery struct {
	Buckets []int64
	After   int64 // a number
	Limit   int
	Bytes   int // that payloads and metadata have together, about; one output is returned whatever it has

	ExceptNumbers      []int64
	ExceptDestinations []string
	ExceptKeys         []OutputKey

	Blocked bool // Pending.Blocked is asked for
}

// OutputChecker is implemented by stores that can refuse outputs of producers, whose publishers
// know of no configuration.
type OutputChecker interface {
	// CheckOutputs has check asked of what is written from then on, before it is. Its error
	// refuses an output, wrapped in ErrInvalidOutput; see middleware.Outputs.Check. nil: none
	// is refused.
	CheckOutputs(check func(destination, topic string) error)
}

// OutputKey is what an order key stands for: the order is that of one destination.
type OutputKey struct{ Destination, OrderKey string }

// Pending is the answer to a PendingQuery.
type Pending struct {
	Outputs []PendingOutput
	More    bool // there may be more than the limits allowed
	// Through is the largest number up to which the answer is complete: what is neither in it
	// nor was to be left out has been settled, or will not be committed any more. Stores that
	// cannot know that of transactions that begin to write at this very moment are asked again
	// by the relay.
	Through int64
	// Blocked are the order keys in these buckets that failed outputs block, as it was before
	// Outputs were read.
	Blocked []OutputKey
}

// PendingOutput is an output in the outbox.
type PendingOutput struct {
	Output

	Number    int64 // which outputs with the same order key have in the order of their commits
	Bucket    int64
	Attempts  int // to publish it that were refused
	CreatedAt time.Time
	Err       error // why metadata cannot be read; nil: they could
}

// Settlement is what became of some outputs.
type Settlement struct {
	Published []int64 // by their numbers
	// CreatedAt has when each of Published was created, as Pending has said: others that have
	// their numbers since a failover lost commits are left alone. nil: that is not compared.
	CreatedAt []time.Time
	// Keep moves published outputs to the history, instead of deleting them.
	Keep    bool
	Refused []RefusedOutput
}

// RefusedOutput is an output that its destination has refused.
type RefusedOutput struct {
	Number    int64
	CreatedAt time.Time // as in Settlement; zero: that is not compared
	Attempts  int       // from now on
	Error     string
	Failed    bool // for good: it is moved to the dead letters
	Blocks    bool // and outputs with its order key wait until it is gone from there
}

// OutboxWaker is implemented by stores whose database tells relays in other processes of
// commits. Relays poll all the same.
type OutboxWaker interface {
	// WakeRelays tells those who listen, outside of any other transaction.
	WakeRelays(ctx context.Context, w OutboxWake) error
	// ListenOutbox calls wake once when it listens, and then when somebody is told. It returns
	// an error when ctx ends or the connection is lost, never nil, and one that wraps
	// errors.ErrUnsupported if nothing can be heard on this connection. wake must not block.
	ListenOutbox(ctx context.Context, wake func(OutboxWake)) error
}

// OutboxWake says that outputs were committed.
type OutboxWake struct {
	Sender int64 // who says it
	Number int64 // the smallest of them; 0: it is not known
}

// Leases give exclusive rights to numbered units of a name, for a time by the database's
// clock. They are for whatever needs one owner per store.
type Leases interface {
	// Lease renews the owner's leases, and takes free ones. Those of others are never taken
	// before they have expired.
	Lease(ctx context.Context, r LeaseRequest) (Leased, error)
	// Unlease ends leases of the owner's.
	Unlease(ctx context.Context, name, owner string, units []int64) error
}

// LeaseRequest asks for leases.
type LeaseRequest struct {
	Name  string        // what the units are of, at most MaxDestinationBytes
	Owner string        // unique to who asks, at most MaxDestinationBytes
	Units []int64       // that the owner has, or would take if they are free, in this order
	Limit int           // free ones are taken while the owner has fewer
	TTL   time.Duration // from now on
}

// Leased is what a LeaseRequest has brought.
type Leased struct {
	Units []int64 // that the owner has now
	Live  int     // units of the name that anybody has
}
