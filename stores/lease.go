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
// effect is outside of the database. The lease is the version of the message's failure:
//
//   - Record claims it, in a commit of its own: a Failure with Start, Holder, and how long
//     the lease lives as DueIn.
//   - Extend renews it.
//   - Begin with the version as Claim.Take begins its completion. What the attempt writes is
//     committed with it, or not at all.
//   - Record in that version ends it, when the handler has failed.
//
// Whoever takes an expired lease over, and an operator who breaks it, makes another version.
// From then on the holder before changes nothing.
type LeaseInbox interface {
	Inbox
	Failures

	// Extend lets a lease end d from now. It may be repeated: the version stays. If the lease
	// is not the holder's any longer, or has expired, the error wraps ErrChanged, and nobody
	// can tell whether others have it. Other errors are those of Record.
	Extend(ctx context.Context, l HeldLease, d time.Duration) error

	// RecordStep writes down that a step of the handler is done, in a commit of its own. It
	// may be repeated. If the lease is not the holder's any longer nothing is written, and the
	// error wraps ErrChanged; one that has expired, and that nobody has taken over, is. Other
	// errors are those of Record.
	RecordStep(ctx context.Context, l HeldLease, s Step) error

	// Steps returns the steps on record, to the holder of the lease: to others the error wraps
	// ErrChanged. They outlive the lease, and its holder, and are gone when the message's
	// failure is: with its completion, or when it is purged.
	Steps(ctx context.Context, l HeldLease) ([]Step, error)
}

// Step is a part of a handler's run that is not to be repeated by the next.
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
