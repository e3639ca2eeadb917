package wrapped

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Set has the subscribers and publishers that a broker has opened, and closes them.
type Set struct {
	Package string // name that errors begin with

	subscribers openset.Set[*Subscriber]
	publishers  openset.Set[*Publisher]
}

// Subscriber completes a subscriber and adds it. Its error names every invalid field, or
// wraps brokers.ErrClosed.
func (s *Set) Subscriber(config brokers.SubscriberConfig, sub *Subscriber) (message.Subscriber, error) {
	config, err := config.WithDefaults(s.Package)
	if err != nil {
		return nil, err
	}
	sub.broker, sub.config = s, config
	if !s.subscribers.Add(sub) {
		return nil, s.ErrClosed()
	}
	config.Logger.Info(sub.Notice, watermill.LogFields{"group": config.Group})
	return sub, nil
}

// Publisher adds a publisher; if the broker is closed, it closes it.
func (s *Set) Publisher(p *Publisher) (message.Publisher, error) {
	p.broker = s
	if !s.publishers.Add(p) {
		return nil, errors.Join(s.ErrClosed(), p.Close())
	}
	return p, nil
}

// ErrClosed says that the broker is closed.
func (s *Set) ErrClosed() error { return fmt.Errorf("%s: broker: %w", s.Package, brokers.ErrClosed) }

// Close closes the subscribers, and then the publishers, which finish what they are
// publishing.
func (s *Set) Close() {
	_ = s.subscribers.Close() // never fails
	_ = s.publishers.Close()  // never fails
}

// Ask calls a function that takes no context, and waits for it no longer than ctx.
func Ask(ctx context.Context, ask func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- ask() }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
