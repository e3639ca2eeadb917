package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// delivery collects the facts of a delivery until it ends. It is itself the context that carries
// it. Only the delivery's goroutine uses it, except for inFlight.
type delivery struct {
	context.Context //nolint:containedctx // it is one

	consumer *consumer
	span     trace.Span
	begun    time.Time

	questions int
	asked     time.Time  // when the store was asked, while there is no answer
	question  trace.Span // likewise
	opened    time.Time  // when the transaction was opened
	commit    trace.Span

	older, younger *delivery
}

type deliveryKey struct{}

// Value implements context.Context.
func (d *delivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	return d.Context.Value(key)
}

func deliveryOf(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	return d
}

// DeliveryStart implements middleware.DeliveryStartHook.
func (t *Telemetry) DeliveryStart(ctx context.Context, start middleware.DeliveryStart) context.Context {
	d := &delivery{consumer: t.consumer(start.Consumer, start.Topic), begun: time.Now()}
	options := d.consumer.start
	ctx, made := t.parent(ctx, carrier(start.Message.Metadata))
	if made.IsValid() {
		options = append(slices.Clip(options), trace.WithLinks(trace.Link{
			SpanContext: made, Attributes: []attribute.KeyValue{keyLink.String(linkMessage)},
		}))
	}
	d.Context, d.span = t.tracer.Start(ctx, d.consumer.span, options...) //nolint:spancheck // DeliveryEnd ends it
	if d.span.IsRecording() {
		d.span.SetAttributes(t.arrival(&start)...)
	}
	t.inFlight.add(d)
	if start.Facts.Suspect || start.Facts.Count > 1 {
		count(ctx, t.metrics.redeliveries, d.consumer.labels)
	}
	return d
}

// parent returns the context in which a delivery's span begins, and the message's span if it is
// to be linked.
func (t *Telemetry) parent(ctx context.Context, from carrier) (context.Context, trace.SpanContext) {
	if len(from) == 0 {
		return ctx, trace.SpanContext{}
	}
	ambient := trace.SpanContextFromContext(ctx)
	extracted := t.propagator.Extract(ctx, from)
	made := trace.SpanContextFromContext(extracted)
	if made.Equal(ambient) {
		return extracted, trace.SpanContext{} // the message has no span
	}
	if t.config.Relation == Parent && !ambient.IsValid() {
		return extracted, trace.SpanContext{}
	}
	// A middleware around the inbox has begun a span, or links are wanted.
	return baggage.ContextWithBaggage(ctx, baggage.FromContext(extracted)), made
}

// arrival returns a delivery's own attributes, without those of its consumer.
func (t *Telemetry) arrival(start *middleware.DeliveryStart) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.MessagingMessageBodySize(len(start.Message.Payload)))
	if id := start.Message.UUID; id != "" {
		attrs = append(attrs, semconv.MessagingMessageID(cut(id)))
	}
	attrs = append(attrs, placed(t.config.System, &start.Facts)...)
	if n := start.Facts.Count; n > 0 {
		attrs = append(attrs, keyDelivery.Int(n))
	}
	if start.Facts.Suspect {
		attrs = append(attrs, keySuspect.Bool(true))
	}
	if start.Retry {
		attrs = append(attrs, keyRetry.Bool(true))
	}
	return attrs
}

// TraceParent implements middleware.TraceParentHook. A message's row keeps the span of the
// delivery that completed the message.
func (t *Telemetry) TraceParent(ctx context.Context) (parent stores.TraceParent) {
	d := deliveryOf(ctx)
	if d == nil {
		return parent
	}
	c := d.span.SpanContext()
	if !c.IsValid() || c.IsRemote() { // remote: this process makes no spans
		return parent
	}
	traceID, spanID := c.TraceID(), c.SpanID()
	copy(parent[:16], traceID[:])
	copy(parent[16:24], spanID[:])
	parent[24] = byte(c.TraceFlags())
	return parent
}

// completedBy returns the span of the delivery that completed the message, from the row.
func completedBy(p stores.TraceParent) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(p[:16]), SpanID: trace.SpanID(p[16:24]), TraceFlags: trace.TraceFlags(p[24]), Remote: true,
	})
}

// DeliveryEnd implements middleware.DeliveryEndHook.
func (t *Telemetry) DeliveryEnd(ctx context.Context, end middleware.DeliveryEnd) {
	d := deliveryOf(ctx)
	if d == nil {
		return
	}
	t.inFlight.remove(d)
	t.answered(d, t.metrics.claim, stores.Verdict{}, errStoppedEarly) // if a hook or the store has panicked
	t.closeTransaction(d, nil)
	key := resultKey{result: end.Result, reason: end.Reason, failed: failure(&end), cached: end.Cached, retry: end.Retry}
	t.metrics.ended(d.Context, &end, d.consumer, t.result(d.consumer, key))
	if d.span.IsRecording() {
		d.tell(&end, key)
	}
	d.span.End()
}

// failure returns the error.type of a delivery, "" if it is no error.
func failure(end *middleware.DeliveryEnd) string {
	switch end.Result {
	case middleware.ResultPanicked:
		return string(stores.ClassPanic)
	case middleware.ResultQuarantined:
		return string(end.Reason)
	case middleware.ResultNotNow:
		switch {
		case errors.Is(end.Err, middleware.ErrInFlight):
			return "" // another delivery of the message runs, which is no error
		case errors.Is(end.Err, stores.ErrCommitUnknown):
			return string(stores.ClassUnknown)
		}
		return string(middleware.ResultNotNow)
	case middleware.ResultParked, middleware.ResultGivenBack, middleware.ResultFailed:
		if end.Class == "" || end.Class == stores.ClassOrder { // it failed earlier, or not at all
			return ""
		}
		return errorType(end.Class)
	case middleware.ResultCompleted, middleware.ResultDuplicate, middleware.ResultFinal:
	}
	return ""
}

// tell records the result of the delivery on its span.
func (d *delivery) tell(end *middleware.DeliveryEnd, key resultKey) {
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, keyResult.String(string(end.Result)))
	add := func(is bool, attr attribute.KeyValue) {
		if is {
			attrs = append(attrs, attr)
		}
	}
	add(end.Reason != "", keyReason.String(string(end.Reason)))
	add(end.Cached, keyCached.Bool(true))
	add(end.Runs > 0, keyRuns.Int(end.Runs))
	add(end.Attempts > 0, keyAttempts.Int(end.Attempts))
	add(end.Final, keyFinal.Bool(true))
	add(end.DueIn > 0, keyDueIn.Float64(end.DueIn.Seconds()))
	add(end.Held > 0, keyHeld.Float64(end.Held.Seconds()))
	add(d.questions > 1, keyQuestions.Int(d.questions))
	add(key.failed != "", semconv.ErrorTypeKey.String(key.failed))
	d.span.SetAttributes(attrs...)
	if key.failed != "" {
		d.span.SetStatus(codes.Error, key.failed)
		if end.Err != nil {
			d.span.RecordError(boundedError{end.Err})
		}
	}
	if p := end.Verdict.TraceParent; end.Result == middleware.ResultDuplicate && !p.IsZero() {
		d.span.AddLink(trace.Link{
			SpanContext: completedBy(p), Attributes: []attribute.KeyValue{keyLink.String(linkCompleted)},
		})
	}
}

// boundedError is an error whose text is cut for a span. Its method may be the program's, and
// panic.
type boundedError struct{ error }

func (e boundedError) Error() (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = cut(fmt.Sprintf("a %T whose Error method panicked: %v", e.error, r))
		}
	}()
	return cut(e.error.Error())
}

func (e boundedError) Unwrap() error { return e.error }
