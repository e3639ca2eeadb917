package amqp

import (
	"context"
	"maps"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
)

// history is a message's past, carried by its copy: for a copy the server counts deliveries from
// the beginning.
type history struct {
	deliveries int64         // so far
	failures   int64         // deliveries that count towards the limit
	wait       time.Duration // what remains of the delay after the step that it came from
	origin     route         // where it was first published
}

// keep returns the headers that must not be published again unchanged.
func keep() []string { return append(wire.Deaths(), wire.Copies()...) }

// longestWait bounds the rest of a delay. The inbox knows when a message is due, and gives back one
// that comes early.
const longestWait = 30 * 24 * time.Hour

// takeHistory removes the history from a delivery, and returns it. It trusts only messages from the
// queue's own retry exchange, to which nobody else can publish. From other messages it drops the
// history: they are dead letters that somebody published again, or come from a producer.
func takeHistory(d *amqp091.Delivery, queue string) (h history) {
	h.origin = route{d.Exchange, d.RoutingKey}
	value, has := d.Headers[wire.HistoryHeader]
	if !has {
		return h
	}
	table, _ := value.(amqp091.Table)
	kept, _ := table["kept"].(amqp091.Table)
	headers := maps.Clone(d.Headers)
	delete(headers, wire.HistoryHeader)
	d.Headers = headers
	ours := wire.FromRetry(d, queue)
	for _, name := range keep() {
		if ours {
			delete(headers, name) // this value is about the retry queue
		}
		value, has := kept[name]
		if _, newer := headers[name]; has && !newer {
			headers[name] = value
		}
	}
	if !ours {
		return h
	}
	number := func(name string, most int64) int64 {
		n, _ := table[name].(int64)
		return min(max(0, n), most)
	}
	h.deliveries, h.failures = number("deliveries", wire.MostCounted), number("failures", wire.MostCounted)
	h.wait = time.Duration(number("wait", longestWait.Milliseconds())) * time.Millisecond
	h.origin.exchange, _ = table["exchange"].(string)
	h.origin.key, _ = table["key"].(string)
	d.Exchange, d.RoutingKey = h.origin.exchange, h.origin.key
	return h
}

// copyOf returns a message in the form for a retry queue.
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
		// It leaves out the expiration, which ended with the first delivery and would shorten the
		// delay, and the user id, which the server refuses from another user.
	}
}

// step returns the retry queue for a delay, and what remains of the delay after it. A message never
// comes early. To save steps, up to twice the delay is accepted.
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

// publishCopy publishes a copy to the retry queue for its delay. After nil the broker has stored
// the copy.
func (b *Broker) publishCopy(ctx context.Context, queue string, d *amqp091.Delivery, h history, delay time.Duration) error {
	chosen, left := step(b.config.Consume.RetryDelays, min(delay, longestWait))
	h.wait = left
	publishing := copyOf(d, h)
	if err := b.fits(len(publishing.Body), wire.Size(publishing.Headers)); err != nil {
		return err
	}
	name := retryQueue(queue, chosen)
	declare := func(c *connection) error { return b.declareRetry(c, queue, chosen) }
	if _, err := b.ready(ctx, &work{name: "queue " + name, declare: declare}); err == nil {
		b.awaitAge(ctx, name)
	} // publish handles the error
	item := &outgoing{route: route{"", name}, publishing: publishing}
	return b.publish(ctx, "queue "+name, declare, []*outgoing{item})[0]
}
