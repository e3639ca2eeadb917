package amqp

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
)

// history is what a copy of a message carries of its past. A copy is new to the server,
// which counts its deliveries from the beginning.
type history struct {
	deliveries int64         // so far
	failures   int64         // of them, what counts towards the limit
	wait       time.Duration // left beyond the step that it came from
	origin     route         // where it was published to at first
}

// keep are the headers that must not be published again as they are.
func keep() []string { return append(wire.Deaths(), wire.Copies()...) }

// takeHistory removes from a delivery what the copying has put there, and returns it. The
// history of a message that did not come from a retry queue of this queue ends with it:
// somebody has put a dead letter back, or it is a producer's.
func takeHistory(d *amqp091.Delivery, queue string) (h history, isCopy bool) {
	table, isCopy := d.Headers[wire.HistoryHeader].(amqp091.Table)
	if !isCopy {
		return history{origin: route{d.Exchange, d.RoutingKey}}, false
	}
	kept, _ := table["kept"].(amqp091.Table)
	headers := maps.Clone(d.Headers)
	delete(headers, wire.HistoryHeader)
	if !fromRetryQueue(d, queue) {
		for name, value := range kept {
			if _, newer := headers[name]; !newer {
				headers[name] = value
			}
		}
		d.Headers = headers
		return history{origin: route{d.Exchange, d.RoutingKey}}, false
	}
	number := func(name string) int64 {
		n, _ := table[name].(int64)
		return max(0, n)
	}
	h.deliveries, h.failures = number("deliveries"), number("failures")
	h.wait = max(0, time.Duration(number("wait"))*time.Millisecond)
	h.origin.exchange, _ = table["exchange"].(string)
	h.origin.key, _ = table["key"].(string)
	for _, name := range keep() { // are of the retry queue
		delete(headers, name)
	}
	maps.Copy(headers, kept)
	d.Headers, d.Exchange, d.RoutingKey = headers, h.origin.exchange, h.origin.key
	return h, true
}

// fromRetryQueue reports whether the last thing that happened to a message was that its
// time in a retry queue of this queue was over. The broker puts the latest death first.
func fromRetryQueue(d *amqp091.Delivery, queue string) bool {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return false
	}
	last, _ := deaths[0].(amqp091.Table)
	from, _ := last["queue"].(string)
	return last["reason"] == "expired" && strings.HasPrefix(from, queue+".retry.")
}

// copyOf returns the message as it is published to a retry queue.
func copyOf(d *amqp091.Delivery, h history) amqp091.Publishing {
	headers := maps.Clone(d.Headers)
	if headers == nil {
		headers = amqp091.Table{}
	}
	kept := amqp091.Table{}
	for _, name := range keep() {
		if value, ok := headers[name]; ok {
			kept[name] = value
			delete(headers, name)
		}
	}
	for _, name := range wire.Counters() {
		delete(headers, name)
	}
	headers[wire.HistoryHeader] = amqp091.Table{
		"deliveries": h.deliveries, "failures": h.failures, "wait": h.wait.Milliseconds(),
		"exchange": h.origin.exchange, "key": h.origin.key, "kept": kept,
	}
	return amqp091.Publishing{
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp091.Persistent,
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		AppId:           d.AppId,
		Body:            d.Body,
		// Not the expiration, which ended with the first delivery and would shorten the
		// delay, and not the user id, which the server refuses from another user.
	}
}

// step chooses the retry queue for a delay, and what is left to wait after it. A message
// never comes before its time; up to twice the delay is taken for fewer ways.
func step(steps []time.Duration, delay time.Duration) (chosen, left time.Duration) {
	chosen = steps[0]
	for _, s := range steps {
		if s >= delay {
			if s <= 2*delay || s == steps[0] {
				chosen = s
			}
			break
		}
		chosen = s
	}
	return chosen, max(0, delay-chosen)
}

// publishCopy publishes a copy to the retry queue for its delay. If it returns nil, the
// broker has the copy safe.
func (b *Broker) publishCopy(ctx context.Context, queue string, d *amqp091.Delivery, h history, delay time.Duration) error {
	chosen, left := step(b.config.Consume.RetryDelays, delay)
	h.wait = left
	publishing := copyOf(d, h)
	if err := b.fits(len(publishing.Body), wire.Size(publishing.Headers)); err != nil {
		return err
	}
	name := retryQueue(queue, chosen)
	declare := func(c *connection) error { return b.declareRetry(c, queue, chosen) }
	if _, err := b.ready(ctx, &work{name: "queue " + name, declare: declare}); err == nil {
		b.awaitAge(ctx, name)
	} // publish knows what to do about an error
	item := &outgoing{route: route{"", name}, publishing: publishing}
	return b.publish(ctx, "queue "+name, declare, []*outgoing{item})[0]
}
