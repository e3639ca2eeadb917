package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/stores"
)

// maxClaims is how many claims of one delivery get spans. One that is held asks again and
// again, for minutes.
const maxClaims = 10

// ClaimStart implements middleware.ClaimStartHook.
func (t *Telemetry) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	d := deliveryOf(ctx)
	if d == nil {
		return ctx
	}
	t.closeTransaction(d, nil) // of an attempt before, which was rolled back
	d.claims++
	if t.metrics.claim.Enabled(ctx) {
		d.claimed = time.Now()
	}
	if d.span.IsRecording() && d.claims <= maxClaims {
		ctx, d.claim = t.tracer.Start(ctx, "claim")
	}
	return ctx
}

// ClaimEnd implements middleware.ClaimEndHook.
func (t *Telemetry) ClaimEnd(ctx context.Context, v stores.Verdict, err error) {
	d := deliveryOf(ctx)
	if d == nil {
		return
	}
	t.closeClaim(d, err, v)
	if err == nil && v.Outcome == stores.Claimed && t.metrics.transaction.Enabled(ctx) {
		d.opened = time.Now()
	}
}

func (t *Telemetry) closeClaim(d *delivery, err error, v stores.Verdict) {
	if !d.claimed.IsZero() {
		took(d.Context, t.metrics.claim, time.Since(d.claimed), d.consumer.labels)
		d.claimed = time.Time{}
	}
	if d.claim == nil {
		return
	}
	if err == nil {
		d.claim.SetAttributes(keyOutcome.String(v.Outcome.String()))
	}
	endSpan(d.claim, err)
	d.claim = nil
}

// HandlerEnd implements middleware.HandlerEndHook.
func (t *Telemetry) HandlerEnd(ctx context.Context, run time.Duration, _ error) {
	if d := deliveryOf(ctx); d != nil {
		took(ctx, t.metrics.handler, run, d.consumer.labels)
	}
}

// CommitStart implements middleware.CommitStartHook.
func (t *Telemetry) CommitStart(ctx context.Context) context.Context {
	if d := deliveryOf(ctx); d != nil && d.span.IsRecording() {
		ctx, d.commit = t.tracer.Start(ctx, "commit")
	}
	return ctx
}

// CommitEnd implements middleware.CommitEndHook.
func (t *Telemetry) CommitEnd(ctx context.Context, err error) {
	if d := deliveryOf(ctx); d != nil {
		t.closeTransaction(d, err)
	}
}

// closeTransaction ends what is open of a transaction.
func (t *Telemetry) closeTransaction(d *delivery, err error) {
	if d.commit != nil {
		endSpan(d.commit, err)
		d.commit = nil
	}
	if !d.opened.IsZero() {
		took(d.Context, t.metrics.transaction, time.Since(d.opened), d.consumer.labels)
		d.opened = time.Time{}
	}
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		kind := storeError(err)
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		span.SetStatus(codes.Error, kind)
		span.RecordError(boundedError{err})
	}
	span.End()
}

// storeError is the error.type of what a store has answered.
func storeError(err error) string {
	for _, known := range []struct {
		err  error
		kind string
	}{
		{stores.ErrCommitUnknown, "commit_unknown"},
		{stores.ErrNotCommitted, "not_committed"},
		{stores.ErrUnavailable, "unavailable"},
		{stores.ErrNotMigrated, "not_migrated"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	return otherValue
}
