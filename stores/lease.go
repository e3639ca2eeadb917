package stores

import (
	"context"
	"time"
)

// MaxHolderBytes is the longest name of a holder that every store takes.
const MaxHolderBytes = 200

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
}

// HeldLease is the right to run the handler of a message.
type HeldLease struct {
	Key     Key
	Version int64  // as Record returned it
	Holder  string // as Record was given it
}
