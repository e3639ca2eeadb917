package telemetry_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/telemetry"
)

func TestFirstSight(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		rig := newRig(t, open)
		r := rig.run(func(ctx context.Context, _ *message.Message) error {
			_, span := rig.tracers.Tracer("handler").Start(ctx, "work")
			span.End()
			return nil
		})
		r.publish("1", "pears")
		process := r.deliveries(1, "1")[0]
		require.Equal(t, trace.SpanKindConsumer, process.SpanKind())
		require.Equal(t, codes.Unset, process.Status().Code)
		for key, want := range map[attribute.Key]string{
			"messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.system": r.config.System, "messaging.destination.name": r.topic,
			"messaging.consumer.group.name": "shop/stock", "millpond.consumer": "shop/stock",
			"messaging.message.body.size": "5", "millpond.result": "completed", "millpond.runs": "1",
		} {
			require.Equal(t, want, text(process, key), key)
		}
		require.Empty(t, process.Links())
		require.Empty(t, process.Events())

		send := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+r.topic })[0]
		require.Equal(t, trace.SpanKindProducer, send.SpanKind())
		require.Equal(t, send.SpanContext().SpanID(), process.Parent().SpanID())
		require.True(t, process.Parent().IsRemote())
		client := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "client" })[0]
		require.Equal(t, client.SpanContext().SpanID(), send.Parent().SpanID())
		require.Equal(t, client.SpanContext().TraceID(), process.SpanContext().TraceID(), "one trace from the client to the effects")

		for _, name := range []string{"claim", "work", "commit"} {
			require.Len(t, r.beneath(process, name), 1, name)
		}
		require.Equal(t, "claimed", text(r.beneath(process, "claim")[0], "millpond.outcome"))
		if r.config.System == "kafka" {
			require.Equal(t, "0", text(process, "messaging.destination.partition.id"))
			require.Equal(t, "1", text(process, "messaging.kafka.offset"))
		} else {
			require.NotEmpty(t, text(process, "millpond.coordinates"))
		}
	})
}

// A duplicate points to the delivery that did the work, whether the store or the cache
// knew it.
func TestDuplicate(t *testing.T) {
	for name, cache := range map[string]int{"of the store": -1, "of the cache": 100} {
		t.Run(name, func(t *testing.T) {
			byTurns(t, func(t *testing.T, open opener) {
				rig := newRig(t, open)
				rig.inbox.CacheSize = cache
				r := rig.run(func(context.Context, *message.Message) error { return nil })
				r.publish("1", "pears")
				first := r.deliveries(1, "1")[0]
				r.publish("1", "pears")
				second := r.deliveries(2, "1")[1]
				require.Equal(t, "duplicate", text(second, "millpond.result"))
				require.Equal(t, codes.Unset, second.Status().Code)
				require.Equal(t, cache > 0, text(second, "millpond.cached") == "true")
				require.Len(t, second.Links(), 1)
				link := second.Links()[0]
				require.Equal(t, first.SpanContext().SpanID(), link.SpanContext.SpanID())
				require.Equal(t, first.SpanContext().TraceID(), link.SpanContext.TraceID())
				require.Equal(t, []attribute.KeyValue{attribute.String("millpond.link", "completed_by")}, link.Attributes)
			})
		})
	}
}

// A delivery that meets another one of its message is held, and then a duplicate.
func TestInFlight(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		rig := newRig(t, open)
		begun, end := make(chan struct{}, 1), make(chan struct{})
		release := sync.OnceFunc(func() { close(end) })
		r := rig.run(func(context.Context, *message.Message) error {
			begun <- struct{}{}
			<-end
			return nil
		})
		t.Cleanup(release) // before the service is stopped
		r.publish("1", "pears")
		<-begun
		r.publish("1", "pears")
		require.Eventually(t, func() bool {
			n := 0
			for _, s := range r.spans.Ended() {
				switch text(s, "millpond.outcome") {
				case "in_flight", "deferred": // the latter where the first delivery was counted
					n++
				}
			}
			return n > 2
		}, 30*time.Second, time.Millisecond)
		require.Equal(t, 2, r.points("millpond.deliveries.in_flight", "")[""])
		require.Positive(t, r.value("millpond.deliveries.oldest.age"))
		release()
		second := r.deliveries(2, "1")[1]
		require.Equal(t, "duplicate", text(second, "millpond.result"))
		require.Positive(t, seconds(text(second, "millpond.held_seconds")))
		require.Greater(t, seconds(text(second, "millpond.questions")), 2.0)
		require.LessOrEqual(t, len(r.beneath(second, "claim"))+len(r.beneath(second, "look")), 10, "questions of a held delivery have no end")
	})
}

func TestConflict(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		r := newRig(t, open).run(func(context.Context, *message.Message) error { return nil })
		r.publish("1", "pears")
		r.deliveries(1, "1")
		r.publish("1", "apples")
		second := r.deliveries(2, "1")[1]
		require.Equal(t, "quarantined", text(second, "millpond.result"))
		require.Equal(t, "conflict", text(second, "millpond.reason"))
		require.Equal(t, "conflict", text(second, "error.type"))
		require.Equal(t, codes.Error, second.Status().Code)
	})
}

// A failed attempt is an error; the retry that succeeds belongs to the same trace.
func TestHandlerError(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		failed := false
		r := newRig(t, open).run(func(context.Context, *message.Message) error {
			if !failed {
				failed = true
				return errors.New("the shelf is empty")
			}
			return nil
		})
		r.publish("1", "pears")
		spans := r.deliveries(2, "1")
		require.Equal(t, "parked", text(spans[0], "millpond.result"))
		require.Equal(t, "transient", text(spans[0], "error.type"))
		require.Equal(t, "1", text(spans[0], "millpond.attempts"))
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "transient"}, spans[0].Status())
		require.Len(t, spans[0].Events(), 1)
		require.Equal(t, "exception", spans[0].Events()[0].Name)
		require.Empty(t, r.beneath(spans[0], "commit"))
		require.Equal(t, "completed", text(spans[1], "millpond.result"))
		require.Equal(t, "true", text(spans[1], "millpond.retry"))
		require.Equal(t, spans[0].SpanContext().TraceID(), spans[1].SpanContext().TraceID())
	})
}

func TestFailedForGood(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		r := newRig(t, open).run(func(_ context.Context, msg *message.Message) error {
			return middleware.Permanent(errors.New("no such item: " + string(msg.Payload)))
		})
		r.publish("1", "pears")
		span := r.deliveries(1, "1")[0]
		require.Equal(t, "failed", text(span, "millpond.result"))
		require.Equal(t, "permanent", text(span, "error.type"))
		require.Equal(t, "true", text(span, "millpond.final"))
		require.Equal(t, codes.Error, span.Status().Code)
	})
}

func TestPanic(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		panicked := false
		r := newRig(t, open).run(func(context.Context, *message.Message) error {
			if !panicked {
				panicked = true
				panic("ouch")
			}
			return nil
		})
		r.publish("1", "pears")
		var span sdktrace.ReadOnlySpan
		for _, s := range r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return text(s, "millpond.result") == "panicked" }) {
			span = s
		}
		require.Equal(t, "panic", text(span, "error.type"))
		require.Equal(t, codes.Error, span.Status().Code)
		require.Eventually(t, func() bool { return r.points("millpond.deliveries.in_flight", "")[""] == 0 }, 30*time.Second, 5*time.Millisecond)
	})
}

// The reply to COMMIT is lost: the commit's span tells, and the delivery is completed,
// because the store knows.
func TestUnknownCommit(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		rig := newRig(t, open)
		rig.poll = time.Hour // whose questions commit, too
		r := rig.run(func(context.Context, *message.Message) error { return nil })
		// What else commits at the start may take the fault away.
		for i := range 10 {
			r.proxy.LoseCommitReply(1)
			id := strconv.Itoa(i)
			r.publish(id, "pears")
			span := r.deliveries(1, id)[0]
			require.Equal(t, "completed", text(span, "millpond.result"))
			require.Equal(t, codes.Unset, span.Status().Code)
			commit := r.beneath(span, "commit")
			require.Len(t, commit, 1)
			if text(commit[0], "error.type") == "" {
				continue
			}
			require.Equal(t, "commit_unknown", text(commit[0], "error.type"))
			require.Equal(t, codes.Error, commit[0].Status().Code)
			require.Len(t, r.beneath(span, "claim"), 2, "the second one asks what became of it")
			return
		}
		t.Error("no reply to a handler's commit was lost")
	})
}

// A service that stops gives a held delivery back, unharmed.
func TestShutdown(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		begun, end := make(chan struct{}, 1), make(chan struct{})
		release := sync.OnceFunc(func() { close(end) })
		r := newRig(t, open).run(func(context.Context, *message.Message) error {
			begun <- struct{}{}
			<-end
			return nil
		})
		t.Cleanup(release) // before the service is stopped
		r.publish("1", "pears")
		<-begun
		r.publish("1", "pears")
		require.Eventually(t, func() bool {
			return r.points("millpond.deliveries.in_flight", "")[""] == 2
		}, 30*time.Second, time.Millisecond)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stop()
		}()
		held := r.deliveries(1, "1")[0]
		require.Equal(t, "not_now", text(held, "millpond.result"))
		require.Equal(t, codes.Unset, held.Status().Code)
		release()
		<-stopped
		first := r.deliveries(2, "1")[0]
		require.Equal(t, "completed", text(first, "millpond.result"))
	})
}

// With links every delivery begins a trace.
func TestLinks(t *testing.T) {
	byTurns(t, func(t *testing.T, open opener) {
		rig := newRig(t, open)
		rig.config.Relation = telemetry.Link
		r := rig.run(func(context.Context, *message.Message) error { return nil })
		r.publish("1", "pears")
		process := r.deliveries(1, "1")[0]
		require.False(t, process.Parent().IsValid())
		send := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+r.topic })[0]
		require.Len(t, process.Links(), 1)
		require.Equal(t, send.SpanContext().SpanID(), process.Links()[0].SpanContext.SpanID())
		require.Equal(t, []attribute.KeyValue{attribute.String("millpond.link", "message")}, process.Links()[0].Attributes)
	})
}

// Several messages in one call have a span each, to which that of the call is linked.
func TestPublishMany(t *testing.T) {
	r := newRig(t, both["memory"]).run(func(context.Context, *message.Message) error { return nil })
	require.NoError(t, r.publisher.Publish(r.topic, message.NewMessage("1", nil), message.NewMessage("2", nil)))
	send := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+r.topic })[0]
	require.Equal(t, trace.SpanKindClient, send.SpanKind())
	require.Equal(t, "2", text(send, "messaging.batch.message_count"))
	created := r.ended(2, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "create "+r.topic })
	require.Len(t, send.Links(), 2)
	for i, id := range []string{"1", "2"} {
		require.Equal(t, created[i].SpanContext().SpanID(), send.Links()[i].SpanContext.SpanID())
		require.Equal(t, created[i].SpanContext().SpanID(), r.deliveries(1, id)[0].Parent().SpanID())
	}
}

type refusing struct{ message.Publisher }

func (refusing) Publish(string, ...*message.Message) error { return errors.New("no") }

func TestPublishFails(t *testing.T) {
	r := newRig(t, both["memory"]).run(func(context.Context, *message.Message) error { return nil })
	require.Error(t, r.telemetry.Publisher(refusing{}).Publish(r.topic, message.NewMessage("1", nil)))
	send := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+r.topic })[0]
	require.Equal(t, codes.Error, send.Status().Code)
	require.Equal(t, map[string]int{"_OTHER": 1}, r.points("messaging.client.sent.messages", "error.type"))
}
