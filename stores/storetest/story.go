package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// expectation is what must become of the first attempt.
type expectation uint8

const (
	mayCommit  expectation = iota // all of it or nothing
	mustCommit                    // the act is honest
	mustFail                      // the handler hid or ended something: nothing of it may stay
)

// ending is what the handler returns after its act.
type ending string

const (
	hides ending = "then nil"
	fails ending = "then an error"
	blows ending = "then a panic"
)

var errHandler = errors.New("storetest: the handler fails")

// misconduct is a handler that is dishonest in its first run, and what must come of
// it.
type misconduct struct {
	act  func(ctx context.Context, msg *message.Message) error
	last bool // the act comes after both effects instead of between them
	end  ending
	want expectation

	wrap          func(message.HandlerFunc) message.HandlerFunc // middleware inside the inbox
	unknown       bool                                          // the commit may be unknown
	errs          []error                                       // one of which Commit must name, with hides
	unpreventable bool                                          // part of it may be committed, and then ends in quarantine
}

// story is the life of one message under a handler that is dishonest at first.
type story struct {
	b    *bench
	name string // of the message: its id and its effect key
	m    misconduct

	failedBefore bool // throughStore takes over a failed row

	mu      sync.Mutex
	runs    int
	written map[int][]Effect // by run: what the driver said was written
	hidden  []error          // what the handler was told in its first run and hid
	failed  bool
}

func (b *bench) story(name string, m misconduct) *story {
	return &story{b: b, name: name, m: m, written: make(map[int][]Effect)}
}

// errorf reports the first thing that is wrong. What follows is its consequence.
func (s *story) errorf(format string, args ...any) {
	s.b.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	s.failed = true
	s.b.tb.Errorf("%s: %s (the handler ran %d times and hid %v)", s.name, fmt.Sprintf(format, args...), s.runs, s.hidden)
}

// handle is the handler: both effects, and in the first run the act.
func (s *story) handle(ctx context.Context, msg *message.Message) error {
	s.mu.Lock()
	s.runs++
	run := s.runs
	s.mu.Unlock()
	if run > 1 {
		return errors.Join(s.write(ctx, "first", run), s.write(ctx, "second", run))
	}
	if err := s.write(ctx, "first", run); err != nil {
		return err
	}
	if s.m.last {
		s.hide(s.write(ctx, "second", run))
	}
	if s.m.act != nil {
		s.hide(s.m.act(ctx, msg))
	}
	if !s.m.last {
		s.hide(s.write(ctx, "second", run))
	}
	switch s.m.end {
	case fails:
		return errHandler
	case blows:
		panic("storetest: the handler panics")
	}
	return nil
}

func (s *story) write(ctx context.Context, label string, run int) error {
	e := Effect{Key: s.name, Label: label, Run: run}
	err := s.b.h.Write(ctx, e)
	if err == nil {
		s.mu.Lock()
		s.written[run] = append(s.written[run], e)
		s.mu.Unlock()
	}
	return err
}

func (s *story) hide(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	s.hidden = append(s.hidden, err)
	s.mu.Unlock()
}

// handler is the handler as a program writes it, with the adapter's typed helper.
func (s *story) handler() message.HandlerFunc {
	typed := s.b.h.Handler(s.handle)
	h := func(msg *message.Message) ([]*message.Message, error) { return nil, typed(msg) }
	if s.m.wrap != nil {
		return s.m.wrap(h)
	}
	return h
}

// committed is the committed state of the message.
type committed struct {
	completed bool
	effects   []Effect
	kept      []stores.QuarantineRow
	failed    *failed
}

// parked reports whether a retry worker has to run the message.
func (c *committed) parked() bool {
	return c.failed != nil && c.failed.state.Status == stores.StatusPending && c.failed.state.Placement == stores.PlacementParked
}

// isKept reports whether the message may be acked although it is not completed: it is in
// quarantine, or among the failures, parked or failed for good, with its content.
func (c *committed) isKept() bool {
	return len(c.kept) > 0 || c.failed != nil && c.failed.content.State == stores.ContentKept &&
		(c.parked() || c.failed.state.Status == stores.StatusFailed)
}

// check reads the committed state of the message and holds it against the
// invariants. acked says whether the message has been acked by now.
func (s *story) check(key stores.Key, acked bool, when string) committed {
	s.b.tb.Helper()
	c := committed{completed: s.b.completed(key), effects: s.b.effects(s.name), kept: s.b.quarantinedAs(key), failed: s.b.failureOf(key)}
	labels := make(map[string]int)
	runs := make(map[int]bool)
	for _, e := range c.effects {
		labels[e.Label]++
		runs[e.Run] = true
		if labels[e.Label] == 2 {
			s.errorf("%s: effect %q is committed twice: %v", when, e.Label, c.effects)
		}
	}
	partly := slices.ContainsFunc(c.kept, func(r stores.QuarantineRow) bool { return r.Reason == stores.ReasonTxCommitted })
	switch {
	case partly && !s.m.unpreventable:
		s.errorf("%s: the handler committed its transaction in the middle, which the store has to prevent", when)
	case partly:
	case c.completed && s.m.unpreventable && !acked:
		// Committed in the middle; what becomes of it is seen when it is acked.
	case c.completed && len(runs) > 1:
		s.errorf("%s: effects of several runs are committed: %v", when, c.effects)
	case c.completed:
		s.complete(c.effects, when)
	case len(c.effects) > 0:
		s.errorf("%s: effects are committed, but the message is not completed: %v", when, c.effects)
	}
	if acked && !c.completed && !c.isKept() {
		s.errorf("%s: the message is acked, but neither completed, nor kept as a failure, nor in quarantine: it is lost", when)
	}
	if c.completed && c.failed != nil {
		s.errorf("%s: the message is completed and has failed: %+v", when, c.failed)
	}
	return c
}

// complete fails unless the effects are all that one run has written.
func (s *story) complete(effects []Effect, when string) {
	s.b.tb.Helper()
	if len(effects) == 0 {
		s.errorf("%s: the message is completed without its effects: they are lost", when)
		return
	}
	s.mu.Lock()
	want := slices.Clone(s.written[effects[0].Run])
	s.mu.Unlock()
	slices.SortFunc(want, func(a, b Effect) int { return strings.Compare(a.Label, b.Label) })
	if !slices.Equal(effects, want) {
		s.errorf("%s: the message is completed with effects %v, its handler has written %v", when, effects, want)
	}
}

// first holds the state after the first attempt against what was expected of it.
// reported says whether the attempt or delivery was reported as a success.
func (s *story) first(c committed, reported bool) {
	s.b.tb.Helper()
	ofFirst := slices.ContainsFunc(c.effects, func(e Effect) bool { return e.Run == 1 })
	switch {
	case s.m.unpreventable:
	case s.m.want == mustCommit && s.m.end == hides && !(reported && c.completed && ofFirst):
		s.errorf("an honest attempt was not committed")
	case s.m.want == mustFail && ofFirst, s.m.end != hides && ofFirst:
		s.errorf("an attempt that must fail was committed: %v", c.effects)
	}
}

// throughInbox tells the story with the whole inbox: delivered until acked, run by a
// retry worker if it was parked, and then delivered twice more.
func (s *story) throughInbox(in *middleware.Inbox) {
	s.b.tb.Helper()
	msg := message.NewMessage(s.name, []byte("payload of "+s.name))
	key := messageKey(s.b.tb, msg)
	h := in.Middleware(s.handler())

	a := s.b.deliver(h, msg)
	c := s.check(key, a.acked, "after the first delivery")
	s.first(c, a.acked)
	if s.m.want == mustFail && !s.m.unpreventable && a.acked && s.ran() == 1 && !c.isKept() {
		s.errorf("the first delivery was acked")
	}
	if s.m.end != hides && a.acked && s.ran() == 1 && !c.isKept() {
		s.errorf("the handler did not return nil and its message was acked")
	}
	const limit = 5
	for n := 0; !a.acked; n++ {
		if n == limit {
			s.errorf("the message is given back for ever, the last time with: %v", a.err)
			return
		}
		a = s.b.deliver(h, msg)
		c = s.check(key, a.acked, "after it was delivered again")
	}
	if c.parked() && len(c.kept) == 0 {
		s.b.work(in, h, func() bool { return s.b.failureOf(key) == nil })
		if c = s.check(key, true, "after a retry worker ran it"); !c.completed && len(c.kept) == 0 {
			s.errorf("the retry worker has not completed the message: %+v", c.failed)
		}
	}
	if c.completed && len(c.kept) == 0 && s.ran() > 1 && len(c.effects) != 2 {
		s.errorf("the honest run left %v, not both effects", c.effects)
	}
	if c.completed {
		s.duplicates(h, msg)
	}
}

// duplicates delivers the settled message again, which must change nothing.
func (s *story) duplicates(h message.HandlerFunc, msg *message.Message) {
	s.b.tb.Helper()
	before, ran := s.b.snapshot(), s.ran()
	for range 2 {
		a := s.b.deliver(h, msg)
		if !a.acked {
			s.errorf("a duplicate was not acked: %v", a.err)
		}
	}
	s.b.unchanged(before, s.name+": a duplicate")
	if s.ran() != ran {
		s.errorf("a duplicate ran the handler")
	}
}

func (s *story) ran() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// messageKey returns the key that the inbox of the suite finds.
func messageKey(tb testing.TB, msg *message.Message) stores.Key {
	tb.Helper()
	id, _, err := keys.First(keys.UUID()).ID(msg, stores.MaxIDBytes)
	if err != nil {
		tb.Fatalf("storetest: %v", err)
	}
	return stores.Key{Consumer: consumer, ID: id}
}
