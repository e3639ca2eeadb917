package handout_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

func desk(t *testing.T, config brokers.SubscriberConfig) *handout.Desk {
	t.Helper()
	config.Group = "group"
	config, err := config.WithDefaults("pkg")
	if err != nil {
		t.Fatal(err)
	}
	return handout.New(t.Context(), config, watermill.LogFields{"topic": "topic"})
}

func newMessage() *message.Message { return message.NewMessage("id", nil) }

func TestFates(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(*handout.Desk, *message.Message)
		fate   handout.Fate
		back   brokers.GiveBack
	}{
		"ack":  {func(_ *handout.Desk, m *message.Message) { m.Ack() }, handout.Acked, brokers.GiveBack{}},
		"nack": {func(_ *handout.Desk, m *message.Message) { m.Nack() }, handout.Nacked, brokers.GiveBack{}},
		"nack with a delay": {func(_ *handout.Desk, m *message.Message) {
			brokers.SetGiveBack(m, brokers.GiveBack{After: time.Hour, Failed: true})
			m.SetContext(context.Background()) // which a middleware may do
			m.Nack()
		}, handout.Nacked, brokers.GiveBack{After: time.Hour, Failed: true}},
		"abandoned":         {func(d *handout.Desk, _ *message.Message) { d.Abandon() }, handout.Abandoned, brokers.GiveBack{}},
		"acked just before": {func(d *handout.Desk, m *message.Message) { m.Ack(); d.Abandon() }, handout.Acked, brokers.GiveBack{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := desk(t, brokers.SubscriberConfig{})
			go func() { c.handle(d, <-d.Messages()) }()
			msg := newMessage()
			h := d.Handout(msg, brokers.Delivery{Count: 3})
			ctx := msg.Context()
			if facts, ok := brokers.DeliveryOf(msg); !ok || facts.Count != 3 {
				t.Errorf("the facts are %+v", facts)
			}
			if fate, back := h.Deliver(); fate != c.fate || back != c.back {
				t.Errorf("%d, %+v", fate, back)
			}
			if ctx.Err() == nil {
				t.Error("the context outlives the delivery")
			}
		})
	}
}

func TestNobodyBegins(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for range 100 { // the choice between two that are ready is made at random
		d := desk(t, brokers.SubscriberConfig{})
		go func() {
			if msg, ok := <-d.Messages(); ok {
				t.Errorf("%s was begun", msg.UUID)
			}
		}()
		h := d.Handout(newMessage(), brokers.Delivery{})
		h.Withdrawn = closed
		if fate, _ := h.Deliver(); fate != handout.Unbegun {
			t.Errorf("a message that was withdrawn: %d", fate)
		}
		d.Stop()
		if fate, _ := d.Handout(newMessage(), brokers.Delivery{}).Deliver(); fate != handout.Unbegun {
			t.Errorf("after the end of the intake: %d", fate)
		}
		d.Finish()
	}
}

func TestLostMessageIsAbandonedAlone(t *testing.T) {
	d := desk(t, brokers.SubscriberConfig{})
	lost := make(chan struct{})
	h := d.Handout(newMessage(), brokers.Delivery{})
	h.Lost = lost
	go func() { <-d.Messages(); close(lost) }()
	if fate, _ := h.Deliver(); fate != handout.Abandoned || d.Context().Err() != nil {
		t.Errorf("%d, %v", fate, d.Context().Err())
	}
}

// TestServe: draining waits for the drain timeout, abandons what is unsettled, and says so
// once; Close waits for Finish.
func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := watermill.NewCaptureLogger()
		d := desk(t, brokers.SubscriberConfig{DrainTimeout: time.Minute, Logger: log})
		fates := make(chan handout.Fate, 1)
		go func() {
			defer d.Finish()
			d.Serve(func() {
				fate, _ := d.Handout(newMessage(), brokers.Delivery{}).Deliver()
				fates <- fate
			})
		}()
		<-d.Messages()
		began := time.Now()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("draining took %s", took)
		}
		if fate := <-fates; fate != handout.Abandoned {
			t.Error(fate)
		}
		want := watermill.LogFields{"topic": "topic", "group": "group", "count": 1, "drain_timeout": "1m0s"}
		if !log.Has(watermill.CapturedMessage{Level: watermill.InfoLogLevel, Msg: "Unsettled messages are delivered again: they were not settled in time", Fields: want}) {
			t.Error(log.Captured())
		}
		if _, open := <-d.Messages(); open {
			t.Error("the channel is open")
		}
	})
}

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk(t, brokers.SubscriberConfig{})
		kept := 0
		h := d.Handout(newMessage(), brokers.Delivery{})
		h.Keep, h.KeepEvery = func() { kept++ }, time.Second
		go func() {
			<-time.After(3500 * time.Millisecond) // also while nobody has it
			msg := <-d.Messages()
			<-time.After(3 * time.Second)
			msg.Ack()
		}()
		if fate, _ := h.Deliver(); fate != handout.Acked || kept != 6 {
			t.Errorf("%d, kept %d times", fate, kept)
		}
	})
}

func TestSlots(t *testing.T) {
	d := desk(t, brokers.SubscriberConfig{InFlight: 2})
	closed := make(chan struct{})
	close(closed)
	for range 2 {
		if !d.Take(nil) {
			t.Error("a slot is missing")
		}
	}
	if d.Take(closed) {
		t.Error("there are more than two slots")
	}
	d.Put()
	if !d.Take(nil) {
		t.Error("no slot is free")
	}
	d.Stop()
	if d.Take(nil) {
		t.Error("a slot after the end")
	}
}

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		back  brokers.GiveBack
		count int
		want  time.Duration
	}{
		{brokers.GiveBack{After: time.Hour}, 9, time.Hour},
		{brokers.GiveBack{}, 0, 10 * time.Millisecond},
		{brokers.GiveBack{}, 1, 10 * time.Millisecond},
		{brokers.GiveBack{}, 3, 40 * time.Millisecond},
		{brokers.GiveBack{}, 1 << 30, time.Second},
	} {
		if got := handout.Delay(c.back, c.count, 10*time.Millisecond, time.Second); got != c.want {
			t.Errorf("%+v, %d: %s, want %s", c.back, c.count, got, c.want)
		}
	}
	if got := handout.Delay(brokers.GiveBack{}, 5, time.Minute, time.Second); got != time.Minute {
		t.Error(got)
	}
}

type subscription struct {
	*handout.Desk

	lingers chan struct{} // until when, after its end; nil: it does not
}

func (s *subscription) Run() {
	s.Serve(func() { <-s.Context().Done() })
	s.Finish()
	if s.lingers != nil {
		<-s.lingers
	}
}

func TestSubscriptions(t *testing.T) {
	var all handout.Subscriptions[*subscription]
	lingers := make(chan struct{})
	defer close(lingers)
	messages, err := all.Start("pkg", &subscription{desk(t, brokers.SubscriberConfig{}), lingers})
	if err != nil || all.Open("pkg") != nil {
		t.Fatal(err)
	}
	why := errors.New("why")
	ask := func(*subscription) (string, error) { return "pkg: here", why }
	if err := all.Receiving(ask); !errors.Is(err, why) || !errors.Is(err, brokers.ErrUnavailable) || fmt.Sprint(err)[:9] != "pkg: here" {
		t.Error(err)
	}
	if err := all.Close(); err != nil {
		t.Error(err)
	}
	if err := all.Receiving(ask); err != nil {
		t.Errorf("after Close: %v", err)
	}
	if _, open := <-messages; open {
		t.Error("the channel is open")
	}
	late := &subscription{Desk: desk(t, brokers.SubscriberConfig{})}
	if _, err := all.Start("pkg", late); !errors.Is(err, brokers.ErrClosed) || late.Context().Err() == nil {
		t.Errorf("a subscription after Close: %v", err)
	}
}
