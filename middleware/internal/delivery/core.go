// Package delivery takes one delivery from its arrival to the result for the router. It is a
// machine with few states. Each state is a function that does its work and returns the next state.
//
//	registering → entering → (looking) → claiming → running → (recording) → done
//
// A delivery that cannot be decided now waits in the state holding, which remembers where it goes on.
// The waits of other states are for one thing each: entering for a turn to ask, looking for a turn to
// run, resolving and recording for the server to end a transaction, and givingBack for the store to
// take back a count. In a batch, claim and commit wait for other members.
//
// The package knows no broker, router or database: it uses its own interfaces and the contract of
// stores.
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
	Fingerprint stores.FingerprintKey // for messages in quarantine

	canceled cancellations
}

// Rows keeps the messages that are not completed.
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
	Topic    string // the message's topic
	Class    stores.Class
	Error    string
	Attempts int
}

// Times bounds what a delivery does outside its attempts.
type Times struct {
	Claim    time.Duration // each claim or look
	Handler  time.Duration
	Record   time.Duration // each write of a failure
	MinPause time.Duration // between two claims
	MaxPause time.Duration
}
