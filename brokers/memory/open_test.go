package memory_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func TestOpenThroughDefaultMux(t *testing.T) {
	broker, err := brokers.Open(t.Context(), "memory://?capacity=3&when_full=fail&delivery_limit=2&redelivery_delay=0s&key_metadata=customer")
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	if limit := broker.Capabilities().DeliveryLimit; limit != (brokers.DeliveryLimit{Known: true, Max: 2}) {
		t.Errorf("DeliveryLimit is %+v", limit)
	}
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("customer", "jane")
		if err := p.Publish("topic", msg); (err != nil) != (i == 3) {
			t.Errorf("publishing message %d of capacity 3 returned %v", i+1, err)
		}
	}
	s, err := broker.Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), "topic")
	if err != nil {
		t.Fatal(err)
	}
	msg := receive(t, messages, "1")
	msg.Ack()
	if key := delivery(t, msg).Key; string(key) != "jane" {
		t.Errorf("Delivery.Key is %q", key)
	}
}

func TestOpenMakesBrokersOfTheirOwn(t *testing.T) {
	for range 2 {
		broker, err := brokers.Open(t.Context(), "memory://")
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		s, err := broker.Subscriber(brokers.SubscriberConfig{Group: "group"})
		if err != nil {
			t.Fatal(err)
		}
		messages, err := s.Subscribe(t.Context(), "topic")
		if err != nil {
			t.Fatal(err)
		}
		p, err := broker.Publisher(brokers.PublisherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish("topic", message.NewMessage("1", nil)); err != nil {
			t.Fatal(err)
		}
		msg := receive(t, messages, "1")
		if at := delivery(t, msg).Coordinates; at != "topic/1" {
			t.Errorf("the first message of a new broker is at %q", at)
		}
		msg.Ack()
	}
}

func TestOpenErrors(t *testing.T) {
	for _, test := range []struct {
		url  string
		says []string // one line of the error each
	}{
		{"memory://?capacity=0", []string{`parameter "capacity" is "0": use a positive number`}},
		{"memory://?capacity=many", []string{`parameter "capacity" is "many": use a whole number`}},
		{"memory://?capacity=", []string{`parameter "capacity" is "": use a whole number`}},
		{"memory://?capacity=99999999999999999999", []string{`parameter "capacity" is "99999999999999999999"`}},
		{"memory://?when_full=drop", []string{`parameter "when_full" is "drop": use wait or fail`}},
		{"memory://?delivery_limit=-1", []string{`parameter "delivery_limit" is "-1": use a number from 0 to`}},
		{"memory://?redelivery_delay=5", []string{`parameter "redelivery_delay" is "5": use a duration such as 50ms, or 0s for none`}},
		{"memory://?redelivery_delay=-5s", []string{`parameter "redelivery_delay" is "-5s": use a duration`}},
		{"memory://?capacity=1&capacity=2", []string{`parameter "capacity" is given 2 times, as ["1" "2"]: give it once`}},
		{"memory://?size=5", []string{`parameter "size" is not known: remove it or use one of capacity, delivery_limit, key_metadata, redelivery_delay, when_full`}},
		{"memory://?capacity=%zz", []string{"query cannot be parsed"}},
		{"memory://?capacity=1;when_full=fail", []string{"query cannot be parsed"}},
		{"memory://host", []string{"the broker has no address"}},
		{"memory:///path", []string{"the broker has no address"}},
		{"memory:opaque", []string{"the broker has no address"}},
		{"memory://#fragment", []string{"the broker has no address"}},
		{"memory://user:s3cret@host?password=s3cret&capacity=-1&when_full=no&delivery_limit=x", []string{
			"the broker has no address",
			`parameter "capacity" is "-1": use a positive number`,
			`parameter "delivery_limit" is "x": use a whole number`,
			`parameter "password" is not known`,
			`parameter "when_full" is "no": use wait or fail`,
		}},
	} {
		broker, err := brokers.Open(t.Context(), test.url)
		if err == nil {
			t.Errorf("%s: opened", test.url)
			_ = broker.Close()
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(test.says) {
			t.Errorf("%s: %d mistakes are reported, want %d: %v", test.url, len(lines), len(test.says), err)
			continue
		}
		for i, says := range test.says {
			if !strings.HasPrefix(lines[i], "memory: ") || !strings.Contains(lines[i], says) {
				t.Errorf("%s: %q does not say %q", test.url, lines[i], says)
			}
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error repeats a secret: %v", test.url, err)
		}
	}
}

func TestOpenInOwnMux(t *testing.T) {
	var mux brokers.Mux
	mux.Handle("test", memory.Open)
	broker, err := mux.Open(t.Context(), "test://?capacity=5")
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Close(); err != nil {
		t.Error(err)
	}
	if _, err := memory.Open(context.Background(), &url.URL{Scheme: "test", Host: "host"}); err == nil {
		t.Error("a URL with a host is accepted")
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := memory.New(memory.Config{Capacity: -1, DeliveryLimit: -2})
	for _, says := range []string{"Config.Capacity is -1: use", "Config.DeliveryLimit is -2: use"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("New returned %v, which does not say %q", err, says)
		}
	}
	broker := newBroker(t, memory.Config{})
	_, err = broker.Subscriber(brokers.SubscriberConfig{InFlight: -1, DrainTimeout: -time.Second})
	for _, says := range []string{"Group is empty: name", "InFlight is -1: use", "DrainTimeout is -1s: use"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Subscriber returned %v, which does not say %q", err, says)
		}
	}
}

func TestTopicRequired(t *testing.T) {
	broker := newBroker(t, memory.Config{})
	if err := newPublisher(t, broker).Publish("", message.NewMessage("1", nil)); err == nil {
		t.Error("Publish takes an empty topic")
	}
	s := newSubscriber(t, broker, brokers.SubscriberConfig{})
	if _, err := s.Subscribe(t.Context(), ""); err == nil {
		t.Error("Subscribe takes an empty topic")
	}
	if err := s.SubscribeInitialize(""); err == nil {
		t.Error("SubscribeInitialize takes an empty topic")
	}
	if err := newPublisher(t, broker).Publish("topic", nil); err == nil || !strings.Contains(err.Error(), "message 1 of 1: the message is nil") {
		t.Errorf("Publish of a nil message returned %v", err)
	}
}
