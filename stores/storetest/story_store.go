package storetest

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// throughStore tells the story without the inbox: it does with the contract what the
// middleware does, and holds each answer of the store against what is committed.
func (s *story) throughStore(store stores.Store) {
	s.b.tb.Helper()
	claim := claimFor(s.name, s.name)
	if s.failedBefore {
		claim.Take = s.b.record(store, failureOf(claim))
	}
	attempt := s.b.win(store, claim)
	err := s.attempt(attempt)
	acked := s.answer(store, claim.Key, err)
	s.outputs(acked, "after the first attempt")
	c := s.check(claim.Key, acked, "after the first attempt")
	s.first(c, acked)
	if partly := c.completed && !acked; partly {
		// Only what cannot be prevented comes here: the middleware quarantines it.
		if !errors.Is(err, stores.ErrTxEscaped) {
			s.errorf("part of the attempt is committed, and the store does not say so with ErrTxEscaped: %v", err)
		}
		return
	}
	if !acked && !s.again(store, claim) {
		return
	}
	before := s.b.snapshot()
	s.b.expect(store, claim, stores.Duplicate)
	s.b.unchanged(before, s.name+": a duplicate")
}

// attempt runs the handler and ends the attempt as its result asks for.
func (s *story) attempt(attempt stores.Attempt) error {
	s.b.tb.Helper()
	msg := message.NewMessage(s.name, nil)
	msg.SetContext(attempt.Context(s.b.ctx))
	_, err := s.handler()(msg)
	s.b.within(patience, s.name+": ending the attempt", func() {
		if err == nil {
			if s.says() {
				err = s.b.emitter(attempt).Emit([]stores.Output{{ID: s.name, Topic: topic, OrderKey: s.b.keys.of("key")}})
			}
			if err != nil && !errors.Is(err, stores.ErrTxClosed) {
				s.errorf("Emit: %v", err)
			}
			err = attempt.Commit(s.b.ctx)
			return
		}
		// An error of Rollback means that the connection was closed, which is as good.
		err = errors.Join(err, attempt.Rollback(s.b.ctx))
	})
	return err
}

// says reports whether the handler's success comes with an output.
func (s *story) says() bool { return s.b.h.Transact != nil }

// outputs fails unless the output is committed exactly if the attempt is.
func (s *story) outputs(acked bool, when string) {
	s.b.tb.Helper()
	want := 0
	if acked && s.says() {
		want = 1
	}
	if s.says() && s.b.said(s.name) != want {
		s.errorf("%s: %d outputs are committed, want %d", when, s.b.said(s.name), want)
	}
}

// answer checks what Commit said, and reports whether the attempt is committed.
func (s *story) answer(store stores.Store, k stores.Key, err error) bool {
	s.b.tb.Helper()
	notCommitted, unknown := errors.Is(err, stores.ErrNotCommitted), errors.Is(err, stores.ErrCommitUnknown)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errHandler) && !notCommitted:
		return false
	case s.ranTwiceInOne(err):
		return false
	case notCommitted == unknown:
		s.errorf("Commit = %v, want an error that wraps either ErrNotCommitted or ErrCommitUnknown", err)
		return false
	case unknown && !s.m.unknown:
		s.errorf("Commit = %v: the server was never lost, so the outcome is known", err)
	case notCommitted && len(s.m.errs) > 0 && !isAny(err, s.m.errs):
		s.errorf("Commit = %v, want an error that wraps one of %q", err, s.m.errs)
	}
	if !unknown {
		return false
	}
	resolver, ok := store.(stores.Resolver)
	if !ok {
		return s.b.completed(k)
	}
	ctx, cancel := context.WithTimeout(s.b.ctx, patience)
	defer cancel()
	completed, err := resolver.Resolve(ctx, k)
	if err != nil {
		s.errorf("Resolve: %v", err)
	}
	return completed
}

// ranTwiceInOne: a middleware inside the inbox passed on what its second run got.
func (s *story) ranTwiceInOne(err error) bool {
	return s.m.wrap != nil && errors.Is(err, stores.ErrReentered) && !errors.Is(err, stores.ErrNotCommitted)
}

// again runs the message once more, now honestly, as soon as its key is free. It
// reports false if the rest of the story cannot be told.
func (s *story) again(store stores.Store, claim stores.Claim) bool {
	s.b.tb.Helper()
	var attempt stores.Attempt
	var verdict stores.Verdict
	var err error
	free := poll(s.b.ctx, patience, func() bool {
		attempt, verdict, err = store.Begin(s.b.ctx, claim)
		return err == nil && verdict.Outcome != stores.InFlight && verdict.Outcome != stores.Parked
	})
	if !free || verdict.Outcome != stores.Claimed {
		s.errorf("Begin = %s, %v after an attempt that was not committed, want claimed", verdict.Outcome, err)
		return false
	}
	s.m.wrap = nil
	err = s.attempt(attempt)
	if err != nil {
		s.errorf("the honest attempt after it: %v", err)
		return false
	}
	s.outputs(true, "after it ran again")
	c := s.check(claim.Key, true, "after it ran again")
	if len(c.effects) != 2 {
		s.errorf("the honest run left %v, not both effects", c.effects)
	}
	return true
}
