package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Stock is the consumer of [Claim].
var Stock = stores.Consumer{Service: "inventory", Handler: "stock"}

// Claim is a claim by [Stock] of the message of an id, whose payload is the id, too. It is
// bounded by a minute.
func Claim(id string) stores.Claim {
	return stores.Claim{
		Key:         stores.Key{Consumer: Stock, ID: []byte(id)},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(id)),
		Bound:       time.Minute,
	}
}

// Begin wins a claim. It returns the attempt and its transaction, which find finds in a
// handler's context.
func Begin[Tx any](tb testing.TB, s stores.Inbox, c stores.Claim, find func(context.Context) (Tx, bool)) (stores.Attempt, Tx) {
	tb.Helper()
	a, v, err := s.Begin(tb.Context(), c)
	if err != nil || v.Outcome != stores.Claimed {
		tb.Fatalf("Begin: %v, %v", v.Outcome, err)
	}
	tx, ok := find(a.Context(tb.Context()))
	if !ok {
		tb.Fatal("no transaction in the attempt's context")
	}
	return a, tx
}

// Verdict returns what Begin says about a claim, and keeps nothing of the attempt.
func Verdict(tb testing.TB, s stores.Inbox, c stores.Claim) stores.Verdict {
	tb.Helper()
	a, v, err := s.Begin(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	if a != nil {
		_ = a.Rollback(tb.Context())
	}
	return v
}
