package handout

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Subscription is one call of Subscribe. An embedded Desk implements every method but Run.
type Subscription interface {
	comparable
	Messages() <-chan *message.Message
	Stop()
	Close() error
	Run() // delivers until the intake ends, drains, and calls Finish
}

// Subscriptions are the subscriptions of one subscriber. The zero value is ready to use.
type Subscriptions[S Subscription] struct{ openset.Set[S] }

// Start runs a subscription and returns its messages. After Close it stops the subscription
// instead, and returns Open's error.
func (s *Subscriptions[S]) Start(pkg string, sub S) (<-chan *message.Message, error) {
	if !s.Add(sub) {
		sub.Stop()
		return nil, s.Open(pkg)
	}
	go func() {
		sub.Run()
		s.Remove(sub)
	}()
	return sub.Messages(), nil
}

// Open returns an error after Close. It wraps brokers.ErrClosed and begins with the package name
// pkg.
func (s *Subscriptions[S]) Open(pkg string) error {
	if s.Closed() {
		return fmt.Errorf("%s: subscriber: %w", pkg, brokers.ErrClosed)
	}
	return nil
}

// Receiving returns why some subscriptions cannot receive, wrapping brokers.ErrUnavailable. It
// returns nil if all can, and after Close. where names a subscription.
func (s *Subscriptions[S]) Receiving(ask func(S) (where string, why error)) error {
	if s.Closed() {
		return nil // those that are still ending do not matter
	}
	var errs []error
	for _, sub := range s.All() {
		if where, why := ask(sub); why != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %w", where, brokers.ErrUnavailable, why))
		}
	}
	return errors.Join(errs...)
}
