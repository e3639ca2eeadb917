package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/publishing"
)

// concurrentBatches is how many requests one Publish has under way, where no order is kept.
const concurrentBatches = 4

type publisher struct {
	broker *Broker
	logger watermill.LoggerAdapter
	calls  publishing.Calls
}

func newPublisher(b *Broker, logger watermill.LoggerAdapter) *publisher {
	return &publisher{broker: b, logger: logger}
}

// target is a queue or an SNS topic that is published to.
type target interface {
	// send sends a batch, and says what became of each message.
	send(ctx context.Context, batch []*outgoing) []error
	limits() (messageBytes, batchBytes int)
	ordered() bool
	action() string // the IAM action
}

// Publish sends the messages in batches of up to ten. To a FIFO queue or topic one batch
// follows the other, and none follows one that failed. The error names the messages that
// were not taken, or may not have been; the others were. It wraps brokers.ErrClosed,
// [ErrTooLarge], [ErrNoQueue], [ErrDenied], or brokers.ErrUnavailable if they were not
// taken within Publish.Timeout. The contexts of messages have no influence.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	if !p.calls.Begin() {
		return fmt.Errorf("sqs: publisher: %w", brokers.ErrClosed)
	}
	defer p.calls.End()

	if len(messages) == 0 {
		return nil
	}
	if err := publishing.Check("sqs", topic, messages); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.broker.config.Publish.Timeout)
	defer cancel()
	defer p.broker.endWith(cancel)()
	t, err := p.target(ctx, topic)
	if err != nil {
		return fmt.Errorf("sqs: publish to %q: %w", topic, p.ended(err))
	}
	all := make([]*outgoing, len(messages))
	for i, msg := range messages {
		if all[i], err = p.outgoing(t, msg); err != nil {
			return fmt.Errorf("sqs: publish to %q, message %d of %d: %w", topic, i+1, len(messages), err)
		}
	}
	_, largest := t.limits()
	batches := batchesOf(all, largest)
	if t.ordered() {
		for _, batch := range batches {
			if !p.deliver(ctx, t, batch) {
				break
			}
		}
	} else {
		p.deliverAll(ctx, t, batches)
	}
	return p.failures(topic, t, messages, all)
}

func (p *publisher) deliverAll(ctx context.Context, t target, batches [][]*outgoing) {
	if len(batches) == 1 {
		p.deliver(ctx, t, batches[0])
		return
	}
	var sending sync.WaitGroup
	places := make(chan struct{}, concurrentBatches)
	for _, batch := range batches {
		places <- struct{}{}
		sending.Go(func() {
			p.deliver(ctx, t, batch)
			<-places
		})
	}
	sending.Wait()
}

// deliver sends a batch, and what failed of it again for as long as that may help. Where
// order is kept only a request that failed as a whole is sent again: what stood behind a
// message that failed was taken before it.
func (p *publisher) deliver(ctx context.Context, t target, batch []*outgoing) bool {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
	for {
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		errs := t.send(request, batch)
		cancel()
		var again []*outgoing
		failed := 0
		for i, err := range errs {
			if err == nil {
				batch[i].err = nil
				continue
			}
			if errors.Is(batch[i].err, errNotSent) || ctx.Err() == nil { // else it says only that the time is over
				batch[i].err = err
			}
			failed++
			if isTransient(err) {
				again = append(again, batch[i])
			}
		}
		if failed == 0 {
			return true
		}
		if len(again) == 0 || t.ordered() && len(again) < len(batch) {
			return false
		}
		p.logger.Debug("Publishing is tried again", watermill.LogFields{"messages": len(again), "because": again[0].err.Error()})
		refresh(p.broker.aws.Credentials, again[0].err)
		batch = again
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return false
		}
	}
}

// failures makes one error of what was not taken.
func (p *publisher) failures(topic string, t target, messages []*message.Message, all []*outgoing) error {
	errs := make([]error, len(all))
	for i, o := range all {
		if o.err != nil {
			errs[i] = p.ended(explain(t.action(), o.err))
		}
	}
	return publishing.Failures("sqs", topic, messages, errs)
}

// ended says that it was Close that ended a call.
func (p *publisher) ended(err error) error {
	select {
	case <-p.broker.ending:
		return fmt.Errorf("%w: %w", brokers.ErrClosed, err)
	default:
		return err
	}
}

// endWith calls f when the broker is closed, until the returned function is called.
func (b *Broker) endWith(f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-b.ending:
			f()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// Close waits for the calls of Publish under way. It may be called many times.
func (p *publisher) Close() error {
	p.calls.Close()
	return nil
}
