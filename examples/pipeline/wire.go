package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/amqp" // the brokers that may be named
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/nats"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/fleet"
)

// A broker is either a real one, or the parent: what is published to that comes by HTTP, and
// what it delivers by the worker's standard input.

// exchange is the parent as a broker.
type exchange struct {
	messages chan fleet.Message
	ended    chan struct{} // closed when nothing more is published
}

func newExchange() *exchange {
	return &exchange{messages: make(chan fleet.Message), ended: make(chan struct{})}
}

// sent is a message on its way to the parent.
type sent struct {
	Topic    string            `json:"topic"`
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata"`
	Payload  []byte            `json:"payload"`
}

// ServeHTTP takes a message, and answers when it has it.
func (e *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m sent
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case e.messages <- fleet.Message{Topic: m.Topic, UUID: m.UUID, Metadata: m.Metadata, Payload: m.Payload}:
	case <-e.ended:
		http.Error(w, "the broker is closed", http.StatusServiceUnavailable)
	case <-r.Context().Done():
	}
}

// source gives what was published, until it has ended.
func (e *exchange) source(yield func(fleet.Message, error) bool) {
	for {
		select {
		case m := <-e.messages:
			if !yield(m, nil) {
				return
			}
		case <-e.ended:
			return
		}
	}
}

var _ iter.Seq2[fleet.Message, error] = (*exchange)(nil).source

// posted is a publisher to the parent.
type posted struct{ url string }

func (p posted) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := p.post(msg.Context(), sent{Topic: topic, UUID: msg.UUID, Metadata: msg.Metadata, Payload: msg.Payload}); err != nil {
			return err
		}
	}
	return nil
}

func (p posted) post(ctx context.Context, m sent) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return post(ctx, p.url, body, http.StatusOK)
}

func (posted) Close() error { return nil }

// post sends a request and expects a status.
func post(ctx context.Context, url string, body []byte, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", brokers.ErrUnavailable, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != want {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// publisher opens a publisher to a broker, by its URL.
func publisher(ctx context.Context, url string) (message.Publisher, func() error, error) {
	if isParent(url) {
		return posted{url}, func() error { return nil }, nil
	}
	broker, err := brokers.Open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return nil, nil, errors.Join(err, broker.Close())
	}
	return p, func() error { return errors.Join(p.Close(), broker.Close()) }, nil
}

// subscriber opens a subscriber of a broker. The router closes it.
func subscriber(ctx context.Context, url, group string, parent *fleet.Worker) (message.Subscriber, func() error, error) {
	if isParent(url) {
		return parent, func() error { return nil }, nil
	}
	broker, err := brokers.Open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	s, err := broker.Subscriber(brokers.SubscriberConfig{Group: group, InFlight: inFlight})
	if err != nil {
		return nil, nil, errors.Join(err, broker.Close())
	}
	return s, broker.Close, nil
}

// announcing is a publisher between whose answers and their being written down a process may die.
type announcing struct {
	message.Publisher

	point   string
	reached func(point string)
}

func (a announcing) Publish(topic string, messages ...*message.Message) error {
	err := a.Publisher.Publish(topic, messages...)
	a.reached(a.point)
	return err
}

// initialize makes what a group needs on a real broker, before anything is published.
func initialize(ctx context.Context, url, group, topic string) error {
	if isParent(url) {
		return nil
	}
	s, end, err := subscriber(ctx, url, group, nil)
	if err != nil {
		return err
	}
	if i, ok := s.(message.SubscribeInitializer); ok {
		err = i.SubscribeInitialize(topic)
	}
	return errors.Join(err, s.Close(), end())
}
