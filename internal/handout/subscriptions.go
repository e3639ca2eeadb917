package handout

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Subscription is one call of Subscribe. An embedded Desk implements all methods but Run.
type Subscription interface {
	comparable
	Messages() <-chan *message.Message
	Stop()
	Close() error
	Run() // delivers until the intake ends, drains, and calls Finish
}

// Subscriptions are the subscriptions of one subscriber. The zero value is empty and ready
// for use.
type Subscriptions[S Subscription] struct{ openset.Set[S] }

// Start runs a subscription and returns its messages. After Close it stops it instead, and
// returns the error of Open.
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

// Open returns an error that wraps brokers.ErrClosed after Close. It begins with the name
// of the package pkg.
func (s *Subscriptions[S]) Open(pkg string) error {
	if s.Closed() {
		return fmt.Errorf("%s: subscriber: %w", pkg, brokers.ErrClosed)
	}
	return nil
}

// Receiving returns why subscriptions cannot receive, wrapping brokers.ErrUnavailable; nil
// if all can, and after Close. where names a subscription.
func (s *Subscriptions[S]) Receiving(ask func(S) (where string, why error)) error {
	if s.Closed() {
		return nil // those that still end say nothing of it
	}
	var errs []error
	for _, sub := range s.All() {
		if where, why := ask(sub); why != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %w", where, brokers.ErrUnavailable, why))
		}
	}
	return errors.Join(errs...)
}
