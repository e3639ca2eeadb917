package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/brokers"
)

// Publisher returns a publisher that makes a span for each Publish, as a child of the span in the
// messages' context (message.Message.SetContext), and replaces the trace context in the messages'
// metadata. If a call has several messages, each gets a span "create", and the span of the call
// links to them. Close closes p. The publisher is a brokers.EachPublisher if p is.
func (t *Telemetry) Publisher(p message.Publisher) message.Publisher {
	if each, ok := p.(brokers.EachPublisher); ok {
		return &eachPublisher{publisher{p, t}, each}
	}
	return &publisher{Publisher: p, telemetry: t}
}

type eachPublisher struct {
	publisher
	each brokers.EachPublisher
}

// PublishEach implements brokers.EachPublisher.
func (p *eachPublisher) PublishEach(ctx context.Context, topic string, messages ...*message.Message) (errs []error) {
	_ = p.publish(topic, messages, func() error {
		errs = p.each.PublishEach(ctx, topic, messages...)
		return errors.Join(errs...)
	})
	return errs
}

type publisher struct {
	message.Publisher
	telemetry *Telemetry
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	return p.publish(topic, messages, func() error { return p.Publisher.Publish(topic, messages...) })
}

func (p *publisher) publish(topic string, messages []*message.Message, send func() error) error {
	if len(messages) == 0 {
		return send()
	}
	t := p.telemetry
	attrs, kind := t.destination(topic)
	begun := time.Now()
	var span trace.Span
	ctx := messages[0].Context()
	if len(messages) == 1 {
		attrs := append(attrs, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
			semconv.MessagingMessageID(cut(messages[0].UUID)), semconv.MessagingMessageBodySize(len(messages[0].Payload)))
		ctx, span = t.tracer.Start(ctx, spanName("send", kind), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
		t.inject(ctx, messages[0])
	} else {
		span = t.sendMany(ctx, messages, attrs, kind)
	}
	err := send()
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(otherValue))
		span.SetStatus(codes.Error, "not published")
		span.RecordError(boundedError{err})
	}
	span.End()
	t.published(ctx, attrs, len(messages), time.Since(begun), err)
	return err
}

// sendMany begins the span of a call with several messages, and makes the spans of the messages.
func (t *Telemetry) sendMany(ctx context.Context, messages []*message.Message, attrs []attribute.KeyValue, kind string) trace.Span {
	links := make([]trace.Link, 0, len(messages))
	for _, msg := range messages {
		of := slices.Concat(attrs, []attribute.KeyValue{
			semconv.MessagingOperationTypeCreate, semconv.MessagingOperationName("create"),
			semconv.MessagingMessageID(cut(msg.UUID)), semconv.MessagingMessageBodySize(len(msg.Payload)),
		})
		created, span := t.tracer.Start(msg.Context(), spanName("create", kind), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(of...))
		t.inject(created, msg)
		span.End()
		if c := span.SpanContext(); c.IsValid() {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	of := slices.Concat(attrs, []attribute.KeyValue{
		semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
		semconv.MessagingBatchMessageCount(len(messages)),
	})
	_, span := t.tracer.Start(ctx, spanName("send", kind), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(of...), trace.WithLinks(links...)) //nolint:spancheck // Publish ends it
	return span                                                                                                                                              //nolint:spancheck // likewise
}

func (t *Telemetry) inject(ctx context.Context, msg *message.Message) {
	if msg.Metadata == nil {
		msg.Metadata = make(message.Metadata)
	}
	t.propagator.Inject(ctx, carrier(msg.Metadata))
}

// destination returns the attributes of a topic, and its kind.
func (t *Telemetry) destination(topic string) (attrs []attribute.KeyValue, kind string) {
	attrs = make([]attribute.KeyValue, 0, 8)
	kind = topic
	if t.config.System != "" {
		attrs = append(attrs, system(t.config.System))
	}
	attrs = append(attrs, semconv.MessagingDestinationName(cut(topic)))
	if t.config.DestinationTemplate != nil {
		kind = t.template(topic)
		attrs = append(attrs, semconv.MessagingDestinationTemplate(cut(kind)))
	}
	return attrs, kind
}

// published counts published messages. The label is the kind of the topic, not the topic.
func (t *Telemetry) published(ctx context.Context, attrs []attribute.KeyValue, n int, took time.Duration, err error) {
	labels := make([]attribute.KeyValue, 0, 4)
	labels = append(labels, semconv.MessagingOperationName("send"))
	for _, a := range attrs {
		if a.Key != semconv.MessagingDestinationNameKey {
			labels = append(labels, a)
		}
	}
	if err != nil {
		labels = append(labels, semconv.ErrorTypeKey.String(otherValue))
	}
	option := metric.WithAttributeSet(attribute.NewSet(labels...))
	t.metrics.sent.Add(ctx, int64(n), option)
	t.metrics.operation.Record(ctx, took.Seconds(), option)
}
