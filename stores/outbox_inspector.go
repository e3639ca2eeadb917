package stores

import (
	"context"
	"time"
)

// OutputState says where an output is.
type OutputState string

const (
	OutputPending   OutputState = "pending"   // it is to be published
	OutputFailed    OutputState = "failed"    // a dead letter: its destination refused it for good
	OutputPublished OutputState = "published" // it is in the history
)

// Verbs for outputs.
const (
	// VerbRetryOutput gives failed outputs a fresh budget. Outputs that blocked their order keys
	// get back their numbers, and so their places in the order.
	VerbRetryOutput Verb = "outbox retry"
	// VerbDiscardOutput deletes pending and failed outputs. A relay that has read one may still
	// publish it.
	VerbDiscardOutput Verb = "outbox discard"
	// VerbReplayOutput puts copies of published outputs at the end of the outbox, with the same
	// message ids, in the order of their numbers. Published copies are in the history, too:
	// OutputFilter.WithoutCopies leaves them out.
	VerbReplayOutput Verb = "outbox replay"
	// VerbEraseOutput deletes outputs in any state. A relay that has read one may still publish
	// it.
	VerbEraseOutput Verb = "outbox erase"
)

// OutputFilter selects outputs in one state. Other fields that are set must all match.
type OutputFilter struct {
	State         OutputState
	Destination   *string // "" is a destination, too
	Topic, Type   string
	ErrorContains string // a part of the last error, compared byte by byte
	ID            string // exactly this message id
	OrderKey      []byte
	Numbers       []int64

	// Times by the database's clock: when pending outputs were written, failed ones failed for
	// good, and those of the history were published. Zero: unbounded.
	Since, Until time.Time
	// WithoutCopies leaves out each copy made by VerbReplayOutput whose source is in the same state
	// and within Since and Until, too.
	WithoutCopies bool
}

// OutputQuery asks for one page of outputs, the latest number first.
type OutputQuery struct {
	OutputFilter
	Before int64 // only smaller numbers; 0: the first page
	Limit  int   // positive
}

// OutputRow is an output, as operators see it.
type OutputRow struct {
	Output // without metadata and payload, except from OutboxInspector.Output

	State     OutputState
	Number    int64
	CopyOf    int64 // the number of the source, if it is a copy made by VerbReplayOutput; else 0
	Attempts  int   // refused attempts
	Error     string
	Blocks    bool // it has failed, and outputs of its order key wait
	Bytes     int  // of metadata and payload
	CreatedAt time.Time
	EndedAt   time.Time // when it failed, or was published
	// Unreadable, if not nil, says why metadata are missing.
	Unreadable error
}

// OutputCount counts the outputs of a destination in one state.
type OutputCount struct {
	State       OutputState
	Destination string
	N           int
	More        bool          // there are more than the limit, of this destination or others
	Age         time.Duration // age of the oldest counted one, by the database's clock
}

// OutputChange is one batch of an operator's decision about outputs.
type OutputChange struct {
	Verb          Verb // VerbRetryOutput, VerbDiscardOutput, VerbReplayOutput or VerbEraseOutput
	Filter        OutputFilter
	Actor, Reason string // kept in the audit; cut to MaxDetailBytes

	After int64 // only greater numbers: Changed.Next of the previous batch
	UpTo  int64 // only numbers up to this one; 0: unbounded
	Limit int   // rows in a batch; positive
}

// OutboxInspector is for operators of an outbox. It reads and changes committed state only.
// Limits must be positive. Each change writes an audit entry in the same transaction.
type OutboxInspector interface {
	// Outputs returns one page.
	Outputs(ctx context.Context, q OutputQuery) ([]OutputRow, error)
	// Output returns an output in any state, with all its fields. The error wraps ErrNotFound
	// if there is none.
	Output(ctx context.Context, number int64) (OutputRow, error)
	// MatchingOutputs counts the outputs that match, at most limit of them, and returns their
	// highest number.
	MatchingOutputs(ctx context.Context, f OutputFilter, limit int) (n int, highest int64, err error)
	// OutputCounts counts outputs by state and destination, the oldest limit of each state.
	OutputCounts(ctx context.Context, limit int, states ...OutputState) ([]OutputCount, error)
	// ChangeOutputs carries out one batch, in one transaction. Changed.Busy counts the outputs
	// that were gone before their turn.
	ChangeOutputs(ctx context.Context, c OutputChange) (Changed, error)
}
