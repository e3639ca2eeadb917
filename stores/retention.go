package stores

import (
	"context"
	"time"
)

// ClockMargin is by how much the clocks of a broker and of the database may differ: a purge
// announces a time that is later by that than the rows that it deletes.
const ClockMargin = 5 * time.Minute

// LateAfter is the age from which a delivery is reported to the purge; see Purger.NoteLate.
const LateAfter = 6 * time.Hour

// PurgeKind is a kind of rows that are purged together.
type PurgeKind string

// The kinds. Pending messages are never purged.
const (
	PurgeCompleted   PurgeKind = "completed"   // rows of the inbox
	PurgeFailed      PurgeKind = "failed"      // with their rows of the inbox
	PurgeDiscarded   PurgeKind = "discarded"   // with their rows of the inbox
	PurgeQuarantined PurgeKind = "quarantined" // whatever was decided about them
	PurgePublished   PurgeKind = "published"   // the outbox's history
	PurgeAudited     PurgeKind = "audited"     // operators' decisions
)

// PurgeKinds returns all kinds, in the order in which they are purged.
func PurgeKinds() []PurgeKind {
	return []PurgeKind{PurgeCompleted, PurgeFailed, PurgeDiscarded, PurgeQuarantined, PurgePublished, PurgeAudited}
}

// Forgets reports whether a purged message of the kind may run again when it is delivered again,
// so that its purge must be announced.
func (k PurgeKind) Forgets() bool {
	return k == PurgeCompleted || k == PurgeFailed || k == PurgeDiscarded
}

// Watermark is the state of one consumer's retention. Times are the database's; zero: never.
type Watermark struct {
	Consumer      Consumer
	PurgedThrough time.Time // a message that the broker took earlier, and that has no row, is stale
	AnnouncedAt   time.Time
	LateTime      time.Time // the oldest message that the broker recently delivered
	LateAt        time.Time // when that was noted
	StaleUntil    time.Time // until when an operator allows any number of stale deliveries to be quarantined
}

// Watermarks has the watermarks of all consumers.
type Watermarks struct {
	Now       time.Time // by the database's clock
	Consumers []Watermark
}

// PurgeLimit says which rows of a consumer may be purged.
type PurgeLimit struct {
	Consumer Consumer  // zero for kinds without a consumer
	Before   time.Time // rows whose time is not later
}

// PurgeQuery asks for one range of rows. Consumers without a limit are skipped.
type PurgeQuery struct {
	Kind   PurgeKind
	Limits []PurgeLimit
	After  string // PurgeRange.Next of the previous call; "": the first range
	Rows   int    // rows of the range, roughly; positive
	// Recent separates later rows, for PurgeFound.Before and After.
	Recent time.Time

	// Archive, if not nil, gets the rows that are about to be deleted, before the commit. Its
	// error keeps the rows. It may be called again with the same rows.
	Archive func([]PurgedRow) error
}

// PurgeRange is the result of one range.
type PurgeRange struct {
	Next    string // "": this was the last range
	Found   []PurgeFound
	Deleted int // by Purge
}

// PurgeFound describes the rows of one consumer in a range.
type PurgeFound struct {
	Consumer  Consumer
	Rows      int
	Purgeable int       // rows up to the limit
	Through   time.Time // the newest of these
	Newest    time.Time
	Left      time.Time // the oldest row after the limit
	Before    time.Time // the newest row up to PurgeQuery.Recent
	After     time.Time // the oldest row after PurgeQuery.Recent
}

// PurgedRow is a row that is purged. Fields that its kind does not have are zero.
type PurgedRow struct {
	Kind        PurgeKind
	Consumer    Consumer
	Number      int64 // of the failure, quarantine, output or audit entry
	ID          []byte
	Time        time.Time // the time by which it was purged
	Fingerprint Fingerprint
	TraceParent TraceParent
	Class       string // of a failure; the reason of a quarantine; the verb of an audit entry
	Error       string // of a failure; the detail of a quarantine; the reason of an audit entry
	Topic       string
	Coordinates string
	Codec       string // the codec of metadata and payload
	UUID        string
	Metadata    map[string]string
	Payload     []byte
}

// Purger is implemented by stores whose rows can be purged. Before a row that claims need is
// deleted, its purge must be announced, and the claims in flight meanwhile must have ended. So
// each step is a call, and a commit, of its own. Errors wrap ErrUnavailable, ErrNotMigrated,
// ErrSchemaNewer or ErrClosed.
type Purger interface {
	// Watermarks returns the watermarks of all consumers. It writes nothing.
	Watermarks(ctx context.Context) (Watermarks, error)

	// Survey reads one range and deletes nothing.
	Survey(ctx context.Context, q PurgeQuery) (PurgeRange, error)

	// Announce announces, in a commit of its own, that the consumer's rows up to through may be
	// deleted, and keeps out programs whose claims do not compare times. It cannot be undone.
	Announce(ctx context.Context, c Consumer, through time.Time) error

	// Overtaken reports whether all claims have ended that may not have seen the announcements
	// before the first call. mark is "" at first, and then the result of the previous call.
	Overtaken(ctx context.Context, mark string) (next string, over bool, err error)

	// Purge deletes one range in one commit. Rows of kinds that must be announced are deleted
	// only as far as announced, whatever the limits.
	Purge(ctx context.Context, q PurgeQuery) (PurgeRange, error)

	// NoteLate records the time of an old delivery, so that messages of that age are not purged
	// while they are still delivered. A recently recorded older time stays.
	NoteLate(ctx context.Context, c Consumer, delivered time.Time) error

	// AcceptStale allows any number of stale deliveries to be quarantined for a time.
	AcceptStale(ctx context.Context, c Consumer, d time.Duration) error
}
