package stores

import (
	"context"
	"time"
)

// ClockMargin is by how much the clocks of a broker and of the database may differ: a
// purge announces that it forgets so much more than it deletes.
const ClockMargin = 5 * time.Minute

// LateAfter is how old a delivery is at least that is noted for the purge; see
// Purger.NoteLate.
const LateAfter = 6 * time.Hour

// PurgeKind is what is purged together.
type PurgeKind string

// What is purged. Pending messages never are.
const (
	PurgeCompleted   PurgeKind = "completed"   // rows of the inbox
	PurgeFailed      PurgeKind = "failed"      // with their rows of the inbox
	PurgeDiscarded   PurgeKind = "discarded"   // with their rows of the inbox
	PurgeQuarantined PurgeKind = "quarantined" // whatever was decided about them
	PurgePublished   PurgeKind = "published"   // the outbox's history
	PurgeAudited     PurgeKind = "audited"     // what operators have done
)

// PurgeKinds returns all kinds, in the order in which they are purged.
func PurgeKinds() []PurgeKind {
	return []PurgeKind{PurgeCompleted, PurgeFailed, PurgeDiscarded, PurgeQuarantined, PurgePublished, PurgeAudited}
}

// Forgets reports whether a purged message of the kind may run again when it is delivered
// again, so that the purge has to be announced.
func (k PurgeKind) Forgets() bool {
	return k == PurgeCompleted || k == PurgeFailed || k == PurgeDiscarded
}

// Watermark is what the store knows of the retention of one consumer. Times are the
// database's; zero: never.
type Watermark struct {
	Consumer      Consumer
	PurgedThrough time.Time // deliveries that the broker took before are stale if there is no row
	AnnouncedAt   time.Time
	LateTime      time.Time // the oldest that the broker has lately delivered
	LateAt        time.Time // when that was noted
	StaleUntil    time.Time // until when an operator lets stale deliveries be quarantined, however many
}

// Watermarks are those of all consumers.
type Watermarks struct {
	Now       time.Time // by the database's clock
	Consumers []Watermark
}

// PurgeLimit says which rows of a consumer may go.
type PurgeLimit struct {
	Consumer Consumer  // zero for the kinds that belong to none
	Before   time.Time // rows whose time is not later
}

// PurgeQuery asks for one range of rows. Consumers that have no limit are passed by.
type PurgeQuery struct {
	Kind   PurgeKind
	Limits []PurgeLimit
	After  string // PurgeRange.Next of the call before; "" begins
	Rows   int    // about how many rows the range has; positive
	// Recent tells rows apart whose time is later, for PurgeFound.Before and After.
	Recent time.Time

	// Archive, if not nil, is given what is about to be deleted, before that is committed.
	// Its error leaves the rows where they are. It may be called again with the same rows.
	Archive func([]PurgedRow) error
}

// PurgeRange is the answer.
type PurgeRange struct {
	Next    string // "": the range was the last
	Found   []PurgeFound
	Deleted int // by Purge
}

// PurgeFound is what a range has of one consumer.
type PurgeFound struct {
	Consumer  Consumer
	Rows      int
	Purgeable int       // of them, up to the limit
	Through   time.Time // the newest of those
	Newest    time.Time
	Left      time.Time // the oldest that is later than the limit
	Before    time.Time // the newest that is not later than PurgeQuery.Recent
	After     time.Time // the oldest that is later than that
}

// PurgedRow is a row on its way out. Fields that a kind does not have are zero.
type PurgedRow struct {
	Kind        PurgeKind
	Consumer    Consumer
	Number      int64 // of the failure, quarantine, output or audit entry
	ID          []byte
	Time        time.Time // by which it was purged
	Fingerprint Fingerprint
	TraceParent TraceParent
	Class       string // of a failure; the reason of a quarantine; the verb of an audit entry
	Error       string // of a failure; the detail of a quarantine; the reason of an audit entry
	Topic       string
	Coordinates string
	Codec       string // that metadata and payload went through
	UUID        string
	Metadata    map[string]string
	Payload     []byte
}

// Purger is implemented by stores whose rows can be purged. What a claim cannot see any more
// must be announced, and what was in flight meanwhile be over, before it is deleted: each
// step is a call, and a commit, of its own. Errors wrap ErrUnavailable, ErrNotMigrated,
// ErrSchemaNewer or ErrClosed.
type Purger interface {
	// Watermarks returns what is known of all consumers. It writes nothing.
	Watermarks(ctx context.Context) (Watermarks, error)

	// Survey reads one range and deletes nothing.
	Survey(ctx context.Context, q PurgeQuery) (PurgeRange, error)

	// Announce says, in a commit of its own, that the consumer's rows up to through may be
	// deleted, and keeps out programs whose claims do not look. It never takes anything back.
	Announce(ctx context.Context, c Consumer, through time.Time) error

	// Overtaken reports whether every claim that may not have seen the announcements before
	// the first call is over. mark is "" at first, and then what the call before returned.
	Overtaken(ctx context.Context, mark string) (next string, over bool, err error)

	// Purge deletes one range in one commit. Of the kinds that are forgotten nothing goes
	// that is not announced, whatever the limits.
	Purge(ctx context.Context, q PurgeQuery) (PurgeRange, error)

	// NoteLate notes the time of an old delivery, so that nothing is forgotten that is
	// still being delivered. An older one that was noted lately stays.
	NoteLate(ctx context.Context, c Consumer, delivered time.Time) error

	// AcceptStale lets stale deliveries be quarantined for a time, however many.
	AcceptStale(ctx context.Context, c Consumer, d time.Duration) error
}
