package middleware

import "time"

// hooks keeps each kind apart, so that what nobody observes costs nothing.
type hooks struct {
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
	retrySkip     []RetrySkipHook
}

func newHooks(all []Hook) hooks {
	var h hooks
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
		HandlerEndHook, CommitStartHook, CommitEndHook, HoldHook, IntakeHook, RetrySkipHook:
		return true
	}
	return false
}

// observeDeliveries reports whether somebody wants to know how long deliveries take.
func (h *hooks) observeDeliveries() bool { return len(h.deliveryStart)+len(h.deliveryEnd) > 0 }

func (d *delivery) started() {
	if !d.in.hooks.observeDeliveries() {
		return
	}
	d.begun = time.Now()
	for _, hook := range d.in.hooks.deliveryStart {
		d.ctx = hook.DeliveryStart(d.ctx, DeliveryStart{
			Consumer: d.claim.Key.Consumer, Topic: d.topic, Message: d.msg, Facts: d.facts, Retry: d.retry != nil,
		})
	}
	for _, hook := range d.in.hooks.traceParent {
		if trace := hook.TraceParent(d.ctx); !trace.IsZero() {
			d.claim.TraceParent = trace
		}
	}
}

func (d *delivery) ended() {
	if !d.in.hooks.observeDeliveries() {
		return
	}
	d.end.ID = d.claim.Key.ID
	d.end.Took, d.end.Held = time.Since(d.begun), d.wait.held()
	for _, hook := range d.in.hooks.deliveryEnd {
		hook.DeliveryEnd(d.ctx, d.end)
	}
}
