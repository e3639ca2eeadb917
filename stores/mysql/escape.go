package mysql

import (
	"context"
	"errors"
	"strings"

	"github.com/millpond-go/millpond/internal/sqltx"
)

// A handler that ended its transaction either committed the claim with it, as its row shows, or
// rolled it back. What it did later may be committed without the claim.

// lookForClaim notes whether the claim is gone, with a completion that is not committed, before the
// running transaction is rolled back. After a lost connection that stays open.
func (a *attempt) lookForClaim(ctx context.Context, send func(context.Context, string) (int64, error)) {
	if a.lost || a.innocent() {
		return
	}
	changed, err := send(ctx, string(a.store.texts().finish(nil, &a.claim)))
	a.lost = err == nil && changed != 1 || isContended(err)
}

// innocent reports whether the claim may be gone through no fault of the handler: the server rolled
// back, and nothing was sent since that could commit. On a caller's connection only the typed
// handler's error shows that.
func (a *attempt) innocent() bool {
	if t := a.ss.own; t != nil {
		return interruption(t.gate.Failure()) && !t.loose.Load()
	}
	returned, said := a.Said()
	return !returned || isContended(said) || said != nil && namesContention(said.Error())
}

// namesContention recognizes contention in errors that a handler converted to text.
func namesContention(text string) bool {
	return strings.Contains(text, "Error 1213") || strings.Contains(text, "Error 1205") || strings.Contains(text, "Error 1020")
}

// checkEscape returns sqltx.ErrEscaped if the attempt's claim was committed, or if that cannot be
// known now.
func (a *attempt) checkEscape(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	escaped, err := a.store.closeEscaped(ctx, &a.claim, false)
	a.escaped = escaped
	if escaped || a.lost || err != nil {
		return errors.Join(sqltx.ErrEscaped, err)
	}
	return nil
}

// Escaped implements stores.Escapable.
func (a *attempt) Escaped(ctx context.Context) (bool, error) {
	if a.escaped {
		return true, nil
	}
	escaped, err := a.store.closeEscaped(ctx, &a.claim, true)
	if err == nil && !escaped && a.lost {
		// Effects before and after the end of the transaction may be committed.
		escaped, err = a.store.closeLost(ctx, &a.claim)
	}
	a.escaped = escaped
	return escaped, err
}
