package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// takeDishonest sends what ends or aborts a transaction while a failed row is taken
// over. The row must then be as it was, or the message completed.
func (b *bench) takeDishonest(way Way, all bool) {
	store := b.open()
	for i, st := range statements {
		if st.parks || st.quoting || !all && st.want == mayCommit || b.unnoticed(store, st) {
			continue
		}
		m := misconduct{want: st.want, act: sends(way, st.steps), end: hides}
		if st.want == mustFail {
			m.errs = []error{stores.ErrTxManaged, stores.ErrTxEnded, stores.ErrTxAborted}
		}
		if way.Unpreventable != "" {
			m.unpreventable, m.errs = true, nil
		}
		if i%8 == 7 {
			b.clear()
		}
		s := b.story(fmt.Sprintf("%d %q", i, strings.Join(st.steps, " | ")), m)
		s.failedBefore = true
		s.throughStore(store)
		b.paired()
	}
	b.healthy(store)
}

func takeStuck(b *bench) {
	store, other := b.open(), b.open()
	if !store.Capabilities().ServerBound {
		b.tb.Logf("not checked: the store says that its database has no bound for transactions that stand still")
		return
	}
	claim := claimFor("stuck", "payload")
	version := b.record(store, failureOf(claim))
	claim.Bound = 500 * time.Millisecond
	stuck := b.take(store, claim, version)
	b.write(stuck, Effect{Key: "stuck", Label: "first", Run: 1})
	claim.Bound, claim.Take = checkTimeout, version
	var attempt stores.Attempt
	freed := poll(b.ctx, patience, func() bool {
		var err error
		attempt, _, err = other.Begin(b.ctx, claim)
		if err != nil && !errors.Is(err, stores.ErrUnavailable) {
			b.tb.Errorf("Begin: %v", err)
		}
		return attempt != nil
	})
	if !freed {
		b.rollback(stuck)
		b.tb.Fatalf("the key of a takeover that stands still is not free %s after a bound of 500 ms", patience)
	}
	b.write(attempt, Effect{Key: "stuck", Label: "first", Run: 2})
	b.commit(attempt)
	wantErr(b.tb, "Commit after the bound", stuck.Commit(b.ctx), stores.ErrNotCommitted, stores.ErrCommitUnknown)
	if got := b.effects("stuck"); len(got) != 1 || got[0].Run != 2 {
		b.tb.Errorf("effects %v are committed, want only that of the second holder", got)
	}
	b.paired()
}
