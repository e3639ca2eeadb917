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

// concurrentBatches bounds the concurrent requests of one Publish without order.
const concurrentBatches = 4

// publisher sends messages in batches of up to ten. To a FIFO queue or topic it sends one batch
// after the other, and none after one that failed. Errors wrap brokers.ErrClosed, [ErrTooLarge],
// [ErrNoQueue], [ErrDenied], or brokers.ErrUnavailable if messages were not accepted within
// Publish.Timeout.
type publisher struct {
	publishing.Publisher[*outgoing]

	broker *Broker
	logger watermill.LoggerAdapter
}

func newPublisher(b *Broker, logger watermill.LoggerAdapter) *publisher {
	p := &publisher{broker: b, logger: logger}
	p.Package, p.Timeout, p.Ended = pkg, b.config.Publish.Timeout, b.open.Done()
	p.Open = func(ctx context.Context, topic string) (publishing.Topic[*outgoing], error) {
		t, err := p.target(ctx, topic)
		if err != nil {
			return nil, fmt.Errorf("sqs: publish to %q: %w", topic, p.ended(err))
		}
		return &outlet{p, t}, nil
	}
	return p
}

// target is a queue or SNS topic to publish to.
type target interface {
	// send sends a batch, and returns each message's result.
	send(ctx context.Context, batch []*outgoing) []error
	limits() (messageBytes, batchBytes int)
	ordered() bool
	action() string // the IAM action
}

// outlet is a target as a publishing.Topic.
type outlet struct {
	*publisher
	to target
}

// Encode implements publishing.Topic.
func (o *outlet) Encode(msg *message.Message) (*outgoing, error) { return o.outgoing(o.to, msg) }

// Send implements publishing.Topic.
func (o *outlet) Send(ctx context.Context, all []*outgoing, apart bool) []error {
	_, largest := o.to.limits()
	batches := batchesOf(all, largest)
	if o.to.ordered() {
		for _, batch := range batches {
			if !o.deliver(ctx, o.to, batch) && !apart {
				break
			}
		}
	} else {
		o.deliverAll(ctx, o.to, batches)
	}
	errs := make([]error, len(all))
	for i, out := range all {
		if out.err != nil {
			errs[i] = o.ended(explain(o.to.action(), out.err))
		}
	}
	return errs
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

// deliver sends a batch, and repeats failed messages while that may help. With order it repeats
// only a request that failed as a whole; otherwise later messages would have been accepted before
// the failed one.
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
			if errors.Is(batch[i].err, errNotSent) || ctx.Err() == nil { // an error after ctx's end says only that
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

// ended returns brokers.ErrClosed if Close ended a call.
func (p *publisher) ended(err error) error {
	if p.broker.open.Err() != nil {
		return fmt.Errorf("%w: %w", brokers.ErrClosed, err)
	}
	return err
}
