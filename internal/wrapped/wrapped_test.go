package wrapped_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// library hands over one message, and never ends when it is closed.
type library struct {
	in      chan *message.Message
	settled []wrapped.Answer
}

func (l *library) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return l.in, nil
}

func (l *library) Close() error { time.Sleep(time.Hour); return nil } //nolint:forbidigo // of the bubble

func (l *library) Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error) {
	in, err := l.Subscribe(ctx, "")
	return l, in, err
}

func (*library) Read(*message.Message) brokers.Delivery { return brokers.Delivery{NativeID: "id"} }

func (l *library) Settle(_ *message.Message, answer wrapped.Answer) {
	l.settled = append(l.settled, answer)
}

// partition is a value that the library gives to a message.
type partition struct{}

// TestCloseWaitsForTheHandlerAndNotForTheLibrary: an ack during the drain counts, and a
// library that does not end is left.
func TestCloseWaitsForTheHandlerAndNotForTheLibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := wrapped.Set{Package: "test"}
		l := &library{in: make(chan *message.Message)}
		s, err := set.Subscriber(brokers.SubscriberConfig{Group: "group"}, &wrapped.Subscriber{
			Initialize: func(context.Context, string) error { return nil },
			Source:     func(string, brokers.SubscriberConfig) (wrapped.Source, error) { return l, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Subscribe(t.Context(), "topic")
		if err != nil {
			t.Fatal(err)
		}
		from := message.NewMessage("uuid", []byte("payload"))
		from.SetContext(context.WithValue(t.Context(), partition{}, 7))
		l.in <- from
		msg := <-out
		if d, _ := brokers.DeliveryOf(msg); d.NativeID != "id" || string(msg.Payload) != "payload" {
			t.Errorf("%q, %+v", msg.Payload, d)
		}
		if msg.Context().Value(partition{}) != 7 {
			t.Error("what the library knows of the message is gone")
		}
		began := time.Now()
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		<-msg.Context().Done()
		msg.Ack()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("Close took %s", took)
		}
		if len(l.settled) != 1 || !l.settled[0].Acked {
			t.Errorf("settled: %+v", l.settled)
		}
		if _, err := s.Subscribe(t.Context(), "topic"); !errors.Is(err, brokers.ErrClosed) {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour) //nolint:forbidigo // of the bubble
	})
}

// TestPublishDoesNotWaitForEver for a library that does.
func TestPublishDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := wrapped.Set{Package: "test"}
		p, err := set.Publisher(&wrapped.Publisher{
			Timeout: time.Second, Logger: watermill.NopLogger{}, Library: func() error { return nil },
			Send: func(context.Context, string, []*message.Message) error { time.Sleep(time.Hour); return nil }, //nolint:forbidigo // of the bubble
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish("topic", message.NewMessage("uuid", nil)); !errors.Is(err, brokers.ErrUnavailable) {
			t.Error(err)
		}
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		if err := p.Publish("topic", message.NewMessage("uuid", nil)); !errors.Is(err, brokers.ErrClosed) {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour) //nolint:forbidigo // of the bubble
	})
}
