package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// ledger counts what handlers did, by UUID.
type ledger struct {
	mu      sync.Mutex
	tried   map[string]int
	done    map[string]int
	changed chan struct{} // a message was done
}

func newLedger() *ledger {
	return &ledger{tried: make(map[string]int), done: make(map[string]int), changed: make(chan struct{}, 1)}
}

var errFirstAttempt = errors.New("brokertest: the first attempt fails")

// record is a handler's work. For some messages it fails at first.
func (l *ledger) record(msg *message.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried[msg.UUID]++
	if len(l.tried)%7 == 0 && l.tried[msg.UUID] == 1 {
		return errFirstAttempt
	}
	l.done[msg.UUID]++
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return nil
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// checkRouterCloseLosesNothing closes Watermill's router while handlers run, and lets a second
// router do the rest.
func checkRouterCloseLosesNothing(e *env) error {
	const n = 60
	topic, group := e.topic(), newGroup()

	// On servers that keep no messages for an unknown group, the group must exist first.
	s, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	sent := newMessages(n)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	l := newLedger()
	if err := e.routeAndCloseAmid(l, topic, group, n/3); err != nil {
		return err
	}
	if err := e.routeUntil(l, topic, group, n); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, msg := range sent {
		if times := l.done[msg.UUID]; times != 1 {
			return fmt.Errorf("message %s was handled with success %d times across a graceful restart", msg.Payload, times)
		}
	}
	return nil
}

// routeAndCloseAmid closes the router while handlers run that ignore their context, like one whose
// transaction must end in order.
func (e *env) routeAndCloseAmid(l *ledger, topic, group string, enough int) error {
	held := make(chan context.Context, 1)
	release := make(chan struct{})
	router, err := e.router(topic, group, func(msg *message.Message) error {
		if l.count() >= enough {
			select {
			case held <- msg.Context():
			default:
			}
			<-release
		}
		return l.record(msg)
	})
	if err != nil {
		return err
	}
	var ctx context.Context
	err = e.soon(fmt.Sprintf("handling %d messages", enough), func() error {
		ctx = <-held
		return nil
	})
	go func() {
		defer close(release)
		if err == nil {
			<-ctx.Done()          // the router is being closed,
			<-time.After(e.Quiet) // and gets the time to do it wrong
		}
	}()
	return errors.Join(err, e.soon("closing the router", router.Close))
}

// routeUntil closes the router when that many messages are done.
func (e *env) routeUntil(l *ledger, topic, group string, enough int) error {
	router, err := e.router(topic, group, l.record)
	if err != nil {
		return err
	}
	err = e.soon(fmt.Sprintf("handling all %d messages", enough), func() error {
		for l.count() < enough {
			<-l.changed
		}
		return nil
	})
	return errors.Join(err, e.soon("closing the router", router.Close))
}

func (e *env) router(topic, group string, handler message.NoPublishHandlerFunc) (*message.Router, error) {
	subscriber, err := e.subscriber(brokers.SubscriberConfig{Group: group, InFlight: severalInFlight, DrainTimeout: e.Within})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: e.Within}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("brokertest", topic, subscriber, handler)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	err = e.soon("starting the router", func() error {
		select {
		case <-router.Running():
			return nil
		case err := <-ended:
			return err
		}
	})
	return router, err
}
