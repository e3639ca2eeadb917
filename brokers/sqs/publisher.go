package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/publishing"
)

// concurrentBatches is how many requests one Publish has under way, where no order is kept.
const concurrentBatches = 4

type publisher struct {
	publishing.Calls

	broker *Broker
	logger watermill.LoggerAdapter
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
	return p.Calls.Publish(pkg, topic, messages, func() error { return p.publish(topic, messages) })
}

func (p *publisher) publish(topic string, messages []*message.Message) error {
	ctx, cancel := context.WithTimeout(p.broker.open, p.broker.config.Publish.Timeout)
	defer cancel()
	t, err := p.target(ctx, topic)
	if err != nil {
		return fmt.Errorf("sqs: publish to %q: %w", topic, p.ended(err))
	}
	all, err := publishing.Encode(pkg, topic, messages, func(msg *message.Message) (*outgoing, error) { return p.outgoing(t, msg) })
	if err != nil {
		return err
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
	errs := make([]error, len(all))
	for i, o := range all {
		if o.err != nil {
			errs[i] = p.ended(explain(t.action(), o.err))
		}
	}
	return publishing.Failures(pkg, topic, messages, errs)
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
	pace := outage.Pace()
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
		if !pause.Sleep(ctx, pace.NextBackOff()) {
			return false
		}
	}
}

// ended says that it was Close that ended a call.
func (p *publisher) ended(err error) error {
	if p.broker.open.Err() != nil {
		return fmt.Errorf("%w: %w", brokers.ErrClosed, err)
	}
	return err
}
