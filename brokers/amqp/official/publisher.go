package official

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
)

// publisher guards watermill-amqp's: it declares queues first, waits for a connection, and
// bounds what has no bounds there.
type publisher struct {
	broker    *Broker
	wires     *wires
	logger    serial
	declaring message.Subscriber // nil if there are no queues to declare
	declared  sync.Map           // topics whose queues are there

	mu     sync.RWMutex
	inner  *wmamqp.Publisher
	frame  int         // the largest frame that the server takes; 0: any
	failed atomic.Bool // something that inner has declared may be gone
	closed bool
}

func newPublisher(b *Broker, config brokers.PublisherConfig) (*publisher, error) {
	p := &publisher{broker: b, wires: b.lay(), logger: newSerial(config.Logger)}
	if t := &b.config.Topology; t.Preset == amqp.PresetQueue && !t.AsIs {
		var err error
		if p.declaring, err = b.base.Subscriber(brokers.SubscriberConfig{Group: "publishing"}); err != nil {
			return nil, err
		}
	}
	if err := p.open(); err != nil {
		p.closed = true
		p.stopDeclaring()
		return nil, err
	}
	return p, nil
}

// open makes watermill-amqp's publisher.
func (p *publisher) open() error {
	b := p.broker
	inner, err := wmamqp.NewPublisher(b.watermill("", "publishing", p.wires, writer{}, exchanges{b.config.Topology.AsIs}), p.logger)
	if err != nil {
		return unavailable(err)
	}
	p.inner, p.frame = inner, inner.Connection().Config.FrameSize
	return nil
}

// writer is the marshaler of publishers.
type writer struct{}

func (writer) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	publishing, err := Marshaler{}.Marshal(msg)
	if err == nil {
		publishing.Timestamp = time.Now()
	}
	return publishing, err
}

func (writer) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	return Marshaler{}.Unmarshal(d)
}

// Publish sends the messages one after the other and returns nil when the broker has
// confirmed each. After an error the messages before the one at fault were sent, and that
// one may have been. Errors wrap brokers.ErrClosed, brokers.ErrUnavailable if the broker
// has not confirmed all within Publish.Timeout, amqp.ErrTooLarge, or the errors of
// Subscriber.Subscribe. The package documentation says which messages may be lost.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	p.renew()
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("amqp/official: publisher: %w", brokers.ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	if err := p.check(topic, messages); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.broker.config.Publish.Timeout)
	defer cancel()
	err := p.publish(ctx, topic, messages)
	if err != nil {
		p.declared.Clear()
		p.failed.Store(true)
	}
	return err
}

// check finds what the broker would close the channel over, or even the connection, and
// what watermill-amqp would send to nowhere.
func (p *publisher) check(topic string, messages []*message.Message) error {
	if topic == "" || len(topic) > wire.LongestName {
		return fmt.Errorf("amqp/official: the topic has %d bytes: use 1 to %d", len(topic), wire.LongestName)
	}
	const besideHeaders = 13 * (1 + wire.LongestName) // the other properties
	limit := p.broker.config.Publish.MaxBytes
	for i, msg := range messages {
		publishing, err := writer{}.Marshal(msg)
		switch {
		case err != nil:
		case len(publishing.Body) > limit:
			err = fmt.Errorf("%w: it has %d bytes, max_message_bytes is %d: make it smaller, or raise that, and max_message_size of the server", amqp.ErrTooLarge, len(publishing.Body), limit)
		case p.frame > 0 && wire.Size(publishing.Headers) > p.frame-besideHeaders:
			err = fmt.Errorf("%w: its headers have %d bytes, all together may have %d with the server's frame_max of %d: shorten the metadata",
				amqp.ErrTooLarge, wire.Size(publishing.Headers), p.frame-besideHeaders, p.frame)
		}
		if err != nil {
			return fmt.Errorf("amqp/official: publish to %q, message %d of %d: %w", topic, i+1, len(messages), err)
		}
	}
	return nil
}

func (p *publisher) publish(ctx context.Context, topic string, messages []*message.Message) error {
	if err := p.connected(ctx); err != nil {
		return err
	}
	if _, there := p.declared.Load(topic); p.declaring != nil && !there {
		if err := p.declaring.(message.SubscribeInitializer).SubscribeInitialize(topic); err != nil {
			return err
		}
		p.declared.Store(topic, nil)
	}
	published := make(chan error, 1)
	go func() { published <- p.inner.Publish(topic, messages...) }()
	select {
	case err := <-published:
		return explain(topic, err)
	case <-ctx.Done():
		// Nothing else ends the wait for a confirmation.
		p.wires.interrupt()
		return fmt.Errorf("amqp/official: publish to %q: %w: not confirmed within %s: the broker may be short of memory or disk, or a queue full; publish again (%w)",
			topic, brokers.ErrUnavailable, p.broker.config.Publish.Timeout, <-published)
	}
}

// connected waits until watermill-amqp has a connection.
func (p *publisher) connected(ctx context.Context) error {
	const often = 20 * time.Millisecond
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for {
		p.logger.sync()
		if p.inner.IsConnected() {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("amqp/official: publish: %w: no connection for %s: check that the broker runs", brokers.ErrUnavailable, p.broker.config.Publish.Timeout)
		}
	}
}

// explain adds to an error what to do.
func explain(topic string, err error) error {
	var protocol *amqp091.Error
	switch errors.As(err, &protocol); {
	case err == nil:
		return nil
	case protocol != nil && protocol.Code == amqp091.PreconditionFailed:
		return fmt.Errorf("%w: the exchange of %q: %w: use the same preset, exchange and exchange_type here as where it was declared, or use it as it is with declare=false", amqp.ErrDeclaredOtherwise, topic, err)
	case protocol != nil && protocol.Code == amqp091.AccessRefused:
		return fmt.Errorf("%w: the exchange of %q: %w: allow it with rabbitmqctl set_permissions", amqp.ErrNotAllowed, topic, err)
	default:
		return fmt.Errorf("amqp/official: publish to %q: %w: not confirmed: publish again (%w)", topic, brokers.ErrUnavailable, err)
	}
}

// renew replaces watermill-amqp's publisher after a failure, because it declares an
// exchange once, and never again if that is deleted. While it has no connection it is
// left alone to find one.
func (p *publisher) renew() {
	if !p.failed.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logger.sync()
	if p.closed || !p.failed.Load() || !p.inner.IsConnected() {
		return
	}
	before := p.inner
	if p.open() == nil {
		p.failed.Store(false)
		_ = before.Close() // never fails
	}
}

// Close waits for what is being published, and ends the publisher. It may be called many
// times and always returns nil.
func (p *publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	defer time.AfterFunc(leaveTimeout, p.wires.cut).Stop()
	_ = p.inner.Close() // never fails
	p.wires.cut()
	p.stopDeclaring()
	p.broker.publishers.Remove(p)
	return nil
}

func (p *publisher) stopDeclaring() {
	if p.declaring != nil {
		_ = p.declaring.Close() // never fails
	}
}
