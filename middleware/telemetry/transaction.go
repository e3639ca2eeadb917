package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/stores"
)

// maxQuestions is how many claims and looks of one delivery get spans. A held delivery may repeat
// them for minutes.
const maxQuestions = 10

// ClaimStart implements middleware.ClaimStartHook.
func (t *Telemetry) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	return t.ask(ctx, "claim")
}

// ClaimEnd implements middleware.ClaimEndHook.
func (t *Telemetry) ClaimEnd(ctx context.Context, v stores.Verdict, err error) {
	d := deliveryOf(ctx)
	if d == nil {
		return
	}
	t.answered(d, t.metrics.claim, v, err)
	if err == nil && v.Outcome == stores.Claimed && t.metrics.transaction.Enabled(ctx) {
		d.opened = time.Now()
	}
}

// LookStart implements middleware.LookStartHook.
func (t *Telemetry) LookStart(ctx context.Context, _ stores.Key) context.Context {
	return t.ask(ctx, "look")
}

// LookEnd implements middleware.LookEndHook.
func (t *Telemetry) LookEnd(ctx context.Context, v stores.Verdict, err error) {
	if d := deliveryOf(ctx); d != nil {
		t.answered(d, t.metrics.look, v, err)
	}
}

func (t *Telemetry) ask(ctx context.Context, question string) context.Context {
	d := deliveryOf(ctx)
	if d == nil {
		return ctx
	}
	t.closeTransaction(d, nil) // an earlier attempt, which was rolled back
	d.questions++
	if t.metrics.claim.Enabled(ctx) {
		d.asked = time.Now()
	}
	if d.span.IsRecording() && d.questions <= maxQuestions {
		ctx, d.question = t.tracer.Start(ctx, question) //nolint:spancheck // answered ends it
	}
	return ctx
}

func (t *Telemetry) answered(d *delivery, h metric.Float64Histogram, v stores.Verdict, err error) {
	if !d.asked.IsZero() {
		took(d.Context, h, time.Since(d.asked), d.consumer.labels)
		d.asked = time.Time{}
	}
	if d.question == nil {
		return
	}
	if err == nil {
		d.question.SetAttributes(keyOutcome.String(v.Outcome.String()))
	}
	endSpan(d.question, err)
	d.question = nil
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
		ctx, d.commit = t.tracer.Start(ctx, "commit") //nolint:spancheck // closeTransaction ends it
	}
	return ctx
}

// CommitEnd implements middleware.CommitEndHook.
func (t *Telemetry) CommitEnd(ctx context.Context, err error) {
	if d := deliveryOf(ctx); d != nil {
		t.closeTransaction(d, err)
	}
}

// closeTransaction ends the spans of an open transaction.
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

// storeError returns the error.type of a store's error.
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
