// Package delivery takes one delivery from its arrival to the answer for the router: a
// machine of few states, each a function that does its work and says what comes next.
//
//	register → enter → (look) → claim → run → finish → (record) → done
//
// Holding a delivery is the only way back. It knows no broker, no router and no database:
// what it needs of them are the interfaces of this package and the contract of stores.
package delivery

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/completed"
	"github.com/millpond-go/millpond/middleware/internal/gate"
	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/stores"
)

// Core is what all deliveries of an inbox share. It is safe for concurrent use.
type Core struct {
	Rows        Rows
	Gate        *gate.Gate
	Completed   *completed.Cache
	Keep        *keep.Keeper
	Letters     Letters // nil: dead letters are not copied
	Times       Times
	Fingerprint stores.FingerprintKey // of messages in quarantine

	canceled cancellations
}

// Rows are what the store keeps of messages that are not completed.
type Rows interface {
	stores.Failures
	stores.Quarantine
}

// Letters publishes copies of dead letters.
type Letters interface {
	Publish(ctx context.Context, l Letter) error
}

// Letter is a message that has failed for good, as it arrived.
type Letter struct {
	Message  keep.Message
	Consumer stores.Consumer
	Topic    string // from which it came
	Class    stores.Class
	Error    string
	Attempts int
}

// Times are the bounds of what a delivery does beside its attempts.
type Times struct {
	Claim    time.Duration // each question
	Handler  time.Duration
	Record   time.Duration // each write of what has failed
	MinPause time.Duration // between questions
	MaxPause time.Duration
}
