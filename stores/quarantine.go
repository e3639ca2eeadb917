package stores

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Reason says why a message is in quarantine.
type Reason string

const (
	ReasonConflict    Reason = "conflict"       // its key has a row with another fingerprint
	ReasonNoKey       Reason = "no_key"         // no message id could be found
	ReasonKeyTooLong  Reason = "key_too_long"   // the id is longer than allowed
	ReasonUndecodable Reason = "undecodable"    // the broker adapter could not read it
	ReasonTooLarge    Reason = "too_large"      // payload or metadata over the limits
	ReasonAckedEarly  Reason = "acked_early"    // the handler acked it and its attempt was not committed
	ReasonStale       Reason = "stale"          // it is older than what was purged, and has no row
	ReasonTxCommitted Reason = "handler_commit" // the handler committed its transaction before its end
)

// Quarantined is a message that cannot have a row under its own key. Stores do not retain its
// slices and maps.
type Quarantined struct {
	Consumer Consumer
	ID       []byte // nil if there is none; may be longer than MaxIDBytes
	Reason   Reason
	Detail   string // for people; cut to MaxDetailBytes

	Fingerprint Fingerprint // of this message
	Existing    Fingerprint // of the row, for ReasonConflict

	Topic       string
	Coordinates string // where the broker keeps it, if known
	UUID        string
	Metadata    map[string]string
	Payload     []byte // nil is not empty
	Facts       Facts
	Codec       string // the name of the codec that payload and metadata went through; "": none
	OneWay      bool   // the codec cannot restore them

	// Identity, if not zero, is the result of IdentityHash. It is for messages without an id
	// whose codec writes different bytes each time.
	Identity [sha256.Size]byte
}

// MaxDetailBytes is how many bytes of a detail or an operator's reason are kept.
const MaxDetailBytes = 2 << 10

// IdentityHash distinguishes quarantined messages of one consumer, fingerprint and reason.
// It covers the id if there is one; otherwise topic, coordinates, UUID, metadata and
// payload, so that only equal messages without an id share a row. Take it before a codec
// changes the message, and set Identity to it.
func (q Quarantined) IdentityHash() [sha256.Size]byte {
	if q.Identity != ([sha256.Size]byte{}) {
		return q.Identity
	}
	h := sha256.New()
	var length [8]byte
	write := func(b []byte) {
		binary.BigEndian.PutUint64(length[:], uint64(len(b)))
		h.Write(length[:])
		h.Write(b)
	}
	if len(q.ID) > 0 {
		h.Write([]byte{1})
		write(q.ID)
	} else {
		h.Write([]byte{2})
		write([]byte(q.Topic))
		write([]byte(q.Coordinates))
		write([]byte(q.UUID))
		for _, name := range slices.Sorted(maps.Keys(q.Metadata)) {
			write([]byte(name))
			write([]byte(q.Metadata[name]))
		}
		write(q.Payload)
		q.Facts.identify(h, write)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// identify writes the facts that are set.
func (f Facts) identify(tag io.Writer, write func([]byte)) {
	if f.Key != nil {
		_, _ = tag.Write([]byte{3})
		write(f.Key)
	}
	if f.NativeID != "" {
		_, _ = tag.Write([]byte{4})
		write([]byte(f.NativeID))
	}
	if !f.Time.IsZero() {
		_, _ = tag.Write([]byte{5})
		write(fmt.Append(nil, f.Time.Unix(), ".", f.Time.Nanosecond()))
	}
}

// Quarantine keeps messages that must be acked without having run.
type Quarantine interface {
	// Quarantine stores q in a transaction of its own; nil means that it is durable. There
	// is one row per (consumer, IdentityHash, fingerprint, reason): storing it again only
	// counts it as seen. The whole payload is kept; if the message is too large for that the
	// error wraps ErrTooLarge and nothing was written. Other errors are those of Begin.
	//
	// Text that the database cannot hold is replaced in Topic, Coordinates and Detail, and
	// kept byte by byte in all other fields.
	Quarantine(ctx context.Context, q Quarantined) error
}

// QuarantineRow is a row of the quarantine.
type QuarantineRow struct {
	Quarantined
	RowID           int64
	Seen            int       // how often it was stored
	FirstAt, LastAt time.Time // by the database's clock
	Status          QuarantineStatus
	DecidedAt       time.Time // zero while held
	PayloadBytes    int
	// Unreadable, if not nil, says why metadata or facts are missing.
	Unreadable error
}
