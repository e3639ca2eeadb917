package middleware

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/stores"
)

// hooks keeps each kind apart, so that an unused kind costs nothing.
type hooks struct {
	panics *panicLog

	deliveryStart []DeliveryStartHook
	traceParent   []TraceParentHook
	deliveryEnd   []DeliveryEndHook
	claimStart    []ClaimStartHook
	claimEnd      []ClaimEndHook
	lookStart     []LookStartHook
	lookEnd       []LookEndHook
	handlerEnd    []HandlerEndHook
	commitStart   []CommitStartHook
	commitEnd     []CommitEndHook
	hold          []HoldHook
	intake        []IntakeHook
	server        []ServerHook
	batch         []BatchHook
	retrySkip     []RetrySkipHook
}

func newHooks(all []Hook, p *panicLog) *hooks {
	h := &hooks{panics: p}
	for _, hook := range all {
		add(&h.deliveryStart, hook)
		add(&h.traceParent, hook)
		add(&h.deliveryEnd, hook)
		add(&h.claimStart, hook)
		add(&h.claimEnd, hook)
		add(&h.lookStart, hook)
		add(&h.lookEnd, hook)
		add(&h.handlerEnd, hook)
		add(&h.commitStart, hook)
		add(&h.commitEnd, hook)
		add(&h.hold, hook)
		add(&h.intake, hook)
		add(&h.server, hook)
		add(&h.batch, hook)
		add(&h.retrySkip, hook)
	}
	return h
}

func add[H any](list *[]H, hook Hook) {
	if h, ok := hook.(H); ok {
		*list = append(*list, h)
	}
}

func isHook(hook Hook) bool {
	switch hook.(type) {
	case DeliveryStartHook, TraceParentHook, DeliveryEndHook, ClaimStartHook, ClaimEndHook, LookStartHook, LookEndHook,
		HandlerEndHook, CommitStartHook, CommitEndHook, HoldHook, IntakeHook, ServerHook, BatchHook, RetrySkipHook:
		return true
	}
	return false
}

// call calls a method of a hook. A panic of a hook does not end the delivery: without a
// settlement the message would come again, and meet the hook again.
func (h *hooks) call(method string, f func()) {
	h.panics.note(method, stores.Key{}, callback.Call("it", func() error {
		f()
		return nil
	}))
}

// begin calls a method that may return another context. Its cancellation is ignored: a hook only
// observes, and a call of the store that is cut short looks like a store that is down.
func (h *hooks) begin(ctx context.Context, method string, f func(context.Context) context.Context) context.Context {
	h.call(method, func() {
		switch inner := f(ctx); {
		case inner == nil:
		case inner.Done() == ctx.Done():
			ctx = inner
		default:
			ctx = observed{Context: ctx, values: inner}
		}
	})
	return ctx
}

// observed is a context with the values of a hook's context.
type observed struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // only Value uses it
}

// Value implements context.Context.
func (o observed) Value(key any) any { return o.values.Value(key) }

// handlerEnds ends the run that has begun at begun, which is zero if no hook needs to know.
func (h *hooks) handlerEnds(ctx context.Context, begun time.Time, err error) {
	if begun.IsZero() {
		return
	}
	took := time.Since(begun)
	for _, hook := range h.handlerEnd {
		h.call("Hook.HandlerEnd", func() { hook.HandlerEnd(ctx, took, err) })
	}
}

func (h *hooks) intakePaused(reason error) {
	for _, hook := range h.intake {
		h.call("Hook.IntakePaused", func() { hook.IntakePaused(reason) })
	}
}

func (h *hooks) intakeResumed(after time.Duration) {
	for _, hook := range h.intake {
		h.call("Hook.IntakeResumed", func() { hook.IntakeResumed(after) })
	}
}

func (h *hooks) serverChanged(err error) {
	for _, hook := range h.server {
		h.call("Hook.ServerChanged", func() { hook.ServerChanged(err) })
	}
}

func (h *hooks) retrySkipped(c stores.Consumer, reason SkipReason, n int) {
	for _, hook := range h.retrySkip {
		// Apart, because a hook that exits its goroutine must not end the worker's.
		h.panics.note("Hook.RetrySkipped", stores.Key{}, callback.Apart("it", func() error {
			hook.RetrySkipped(c, reason, n)
			return nil
		}))
	}
}

// observeDeliveries reports whether a hook needs to know how long deliveries take.
func (h *hooks) observeDeliveries() bool { return len(h.deliveryStart)+len(h.deliveryEnd) > 0 }

func (v *visit) started() {
	h, a := v.in.hooks, &v.arrival
	if !h.observeDeliveries() {
		return
	}
	v.diary.begun = time.Now()
	facts, _ := brokers.DeliveryOf(v.msg)
	for _, hook := range h.deliveryStart {
		a.Contexts.Detached = h.begin(a.Contexts.Detached, "Hook.DeliveryStart", func(ctx context.Context) context.Context {
			return hook.DeliveryStart(ctx, DeliveryStart{
				Consumer: a.Claim.Key.Consumer, Topic: a.Origin.Topic, Message: v.msg, Facts: facts, Retry: v.retry != nil,
			})
		})
	}
	for _, hook := range h.traceParent {
		h.call("Hook.TraceParent", func() {
			if trace := hook.TraceParent(a.Contexts.Detached); !trace.IsZero() {
				a.Claim.TraceParent = trace
			}
		})
	}
}

// deliveryEnd returns what the hooks get at the end of a delivery.
func (v *visit) deliveryEnd(e *delivery.End) DeliveryEnd {
	return DeliveryEnd{
		Result: Result(e.Result), Reason: e.Reason, Outcome: e.Outcome, Verdict: e.Verdict,
		ID: v.arrival.Claim.Key.ID, Source: v.diary.source, Cached: e.Cached, Runs: e.Runs, Retry: v.retry != nil,
		Class: e.Class, Attempts: e.Attempts, DueIn: e.DueIn, Final: e.Final,
		Held: e.Held, Err: e.Err,
	}
}

func (v *visit) ended(e *delivery.End) {
	h := v.in.hooks
	if v.diary.begun.IsZero() { // no hook observes deliveries, or none was told of its start
		return
	}
	end := v.deliveryEnd(e)
	end.Took = time.Since(v.diary.begun)
	for _, hook := range h.deliveryEnd {
		h.call("Hook.DeliveryEnd", func() { hook.DeliveryEnd(v.arrival.Contexts.Detached, end) })
	}
}

// ClaimStarts implements execute.Observer.
func (v *visit) ClaimStarts(ctx context.Context, c stores.Claim) context.Context {
	h := v.in.hooks
	for _, hook := range h.claimStart {
		ctx = h.begin(ctx, "Hook.ClaimStart", func(ctx context.Context) context.Context { return hook.ClaimStart(ctx, c) })
	}
	return ctx
}

// ClaimEnds implements execute.Observer.
func (v *visit) ClaimEnds(ctx context.Context, verdict stores.Verdict, err error) {
	h := v.in.hooks
	for _, hook := range h.claimEnd {
		h.call("Hook.ClaimEnd", func() { hook.ClaimEnd(ctx, verdict, err) })
	}
}

// CommitStarts implements execute.Observer.
func (v *visit) CommitStarts(ctx context.Context) context.Context {
	h := v.in.hooks
	for _, hook := range h.commitStart {
		ctx = h.begin(ctx, "Hook.CommitStart", hook.CommitStart)
	}
	return ctx
}

// CommitEnds implements execute.Observer.
func (v *visit) CommitEnds(ctx context.Context, err error) {
	h := v.in.hooks
	for _, hook := range h.commitEnd {
		h.call("Hook.CommitEnd", func() { hook.CommitEnd(ctx, err) })
	}
	v.poke(err)
}

// LookStarts implements delivery.Observer.
func (v *visit) LookStarts(ctx context.Context, k stores.Key) context.Context {
	h := v.in.hooks
	for _, hook := range h.lookStart {
		ctx = h.begin(ctx, "Hook.LookStart", func(ctx context.Context) context.Context { return hook.LookStart(ctx, k) })
	}
	return ctx
}

// LookEnds implements delivery.Observer.
func (v *visit) LookEnds(ctx context.Context, verdict stores.Verdict, err error) {
	h := v.in.hooks
	for _, hook := range h.lookEnd {
		h.call("Hook.LookEnd", func() { hook.LookEnd(ctx, verdict, err) })
	}
}

// Parked implements delivery.Observer.
func (v *visit) Parked(due time.Duration) { v.in.workers.parked(v.arrival.Claim.Key.Consumer, due) }

// Held implements delivery.Observer.
func (v *visit) Held(reason error, store bool, wait time.Duration) {
	v.logHold(reason, store)
	h := v.in.hooks
	for _, hook := range h.hold {
		h.call("Hook.Hold", func() { hook.Hold(v.arrival.Contexts.Detached, reason, wait) })
	}
}
