package stores

import (
	"context"
	"time"
)

const (
	// MaxHolderBytes is the longest name of a holder that every store takes.
	MaxHolderBytes = 200
	// MaxStepNameBytes is the longest name of a step that every store takes.
	MaxStepNameBytes = 200
	// MaxStepResultBytes is the largest result of a step that every store keeps.
	MaxStepResultBytes = 64 << 10
)

// LeaseInbox is implemented by stores on which a handler can run under a lease, because its
// effect is outside the database. The lease is the version of the message's failure:
//
//   - Record claims it, in a commit of its own: a Failure with Start, Holder, and the
//     lifetime of the lease as DueIn.
//   - Extend renews it.
//   - Begin with the version as Claim.Take begins the completion. What the attempt writes is
//     committed with it, or not at all.
//   - Record with that version ends it, when the handler has failed.
//
// Taking over an expired lease makes another version, and so does an operator who breaks it. From
// then on the previous holder changes nothing.
type LeaseInbox interface {
	Inbox
	Failures

	// Extend makes a lease end d from now. It may be repeated: the version stays. If the lease
	// has expired or another holder has it, the error wraps ErrChanged, which does not tell these
	// apart. Other errors are those of Record.
	Extend(ctx context.Context, l HeldLease, d time.Duration) error

	// RecordStep records a finished step of the handler, in a commit of its own. It may be
	// repeated. If another holder has the lease, nothing is written and the error wraps
	// ErrChanged. An expired lease that nobody has taken over still records. Other errors are
	// those of Record.
	RecordStep(ctx context.Context, l HeldLease, s Step) error

	// Steps returns the recorded steps to the holder of the lease; for others the error wraps
	// ErrChanged. Steps outlive the lease and its holder. They are deleted with the message's
	// failure: when the message is completed or purged.
	Steps(ctx context.Context, l HeldLease) ([]Step, error)
}

// Step is a finished part of a handler's run. The next run does not repeat it.
type Step struct {
	Name   string // valid UTF-8 without NUL
	Result []byte
}

// HeldLease is the right to run the handler of a message.
type HeldLease struct {
	Key     Key
	Version int64  // as Record returned it
	Holder  string // as Record was given it
}
