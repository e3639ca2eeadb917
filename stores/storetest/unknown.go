package storetest

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// The wire between a store and its server, broken on purpose at the commit: the
// server has committed and the reply is lost, or the request is.

// lossy is a store whose first commit has an unknown outcome.
type lossy struct {
	stores.Store
	commits bool // what becomes of it
	lost    atomic.Bool
}

// Resolve leaves the question to the store; one that cannot answer claims again.
func (l *lossy) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if resolver, ok := l.Store.(stores.Resolver); ok {
		return resolver.Resolve(ctx, k)
	}
	return false, nil
}

func (l *lossy) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	attempt, verdict, err := l.Store.Begin(ctx, c)
	if attempt == nil {
		return nil, verdict, err
	}
	return &lossyAttempt{Attempt: attempt, store: l}, verdict, err
}

type lossyAttempt struct {
	stores.Attempt
	store *lossy
}

func (a *lossyAttempt) Commit(ctx context.Context) error {
	if a.store.lost.Swap(true) {
		return a.Attempt.Commit(ctx)
	}
	var err error
	if a.store.commits {
		err = a.Attempt.Commit(ctx)
	} else {
		err = a.Attempt.Rollback(ctx)
	}
	if err != nil {
		return err
	}
	return stores.ErrCommitUnknown
}

func lostReply(b *bench)  { b.loses(true, 1) }
func lostCommit(b *bench) { b.loses(false, 2) }

// loses delivers a message whose commit has an unknown outcome: the delivery itself
// must find out, run the handler again exactly if that is needed, and be acked.
func (b *bench) loses(commits bool, runs int) {
	in := b.service(&lossy{Store: b.open(), commits: commits})
	s := b.story("lost", misconduct{end: hides})
	msg := message.NewMessage(s.name, []byte("payload"))
	h := in.Middleware(s.handler())
	a := b.deliver(h, msg)
	if !a.acked {
		b.tb.Errorf("not acked: %v", a.err)
	}
	if s.ran() != runs {
		b.tb.Errorf("the handler ran %d times, want %d", s.ran(), runs)
	}
	s.check(messageKey(b.tb, msg), a.acked, "after an unknown commit")
	s.duplicates(h, msg)
}
