package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// consumer is shared by all deliveries of a handler from one topic. It is made once, so
// that deliveries do not allocate it.
type consumer struct {
	span  string                  // the span's name
	start []trace.SpanStartOption // the span's options

	common []attribute.KeyValue // attributes of its metrics
	labels *labels

	results map[resultKey]*labels // guarded by Telemetry.mu
}

type consumerKey struct {
	consumer stores.Consumer
	topic    string
}

// resultKey is the result of a delivery in metrics. Each of its fields has few values.
type resultKey struct {
	result middleware.Result
	reason stores.Reason
	failed string // error.type
	cached bool
	retry  bool
}

// maxConsumers bounds the consumers that are kept. There are as many as handlers, unless the
// program invents topics at run time. Those beyond the bound share one.
const maxConsumers = 1000

func (t *Telemetry) consumer(c stores.Consumer, topic string) *consumer {
	key := consumerKey{c, topic}
	t.mu.RLock()
	known := t.consumers[key]
	t.mu.RUnlock()
	if known != nil {
		return known
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known = t.consumers[key]; known != nil {
		return known
	}
	if len(t.consumers) >= maxConsumers {
		key = consumerKey{stores.Consumer{Service: otherValue, Handler: otherValue}, ""}
		if known = t.consumers[key]; known != nil {
			return known
		}
	}
	known = t.newConsumer(key)
	t.consumers[key] = known
	return known
}

func (t *Telemetry) newConsumer(key consumerKey) *consumer {
	name := key.consumer.Service + "/" + key.consumer.Handler
	kind := key.topic
	c := &consumer{results: make(map[resultKey]*labels)}
	common := []attribute.KeyValue{semconv.MessagingOperationName("process"), semconv.MessagingConsumerGroupName(cut(name))}
	if t.config.System != "" {
		common = append(common, system(t.config.System))
	}
	c.common = common
	ofSpan := append([]attribute.KeyValue{semconv.MessagingOperationTypeProcess, keyConsumer.String(cut(name))}, common...)
	if key.topic != "" {
		ofSpan = append(ofSpan, semconv.MessagingDestinationName(cut(key.topic)))
		if t.config.DestinationTemplate != nil {
			kind = t.template(key.topic)
			template := semconv.MessagingDestinationTemplate(cut(kind))
			ofSpan = append(ofSpan, template)
			c.common = append(c.common, template)
		}
	}
	c.span = spanName("process", kind)
	c.start = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(ofSpan...)}
	c.labels = newLabels(c.common...)
	return c
}

// result returns the attributes of a result.
func (t *Telemetry) result(c *consumer, key resultKey) *labels {
	t.mu.RLock()
	known := c.results[key]
	t.mu.RUnlock()
	if known != nil {
		return known
	}
	attrs := append([]attribute.KeyValue{keyResult.String(string(key.result))}, c.common...)
	if key.reason != "" {
		attrs = append(attrs, keyReason.String(string(key.reason)))
	}
	if key.failed != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(key.failed))
	}
	if key.cached {
		attrs = append(attrs, keyCached.Bool(true))
	}
	if key.retry {
		attrs = append(attrs, keyRetry.Bool(true))
	}
	known = newLabels(attrs...)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.results[key] = known
	return known
}
