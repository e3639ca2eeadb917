package amqp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rabbitmq/amqp091-go"
)

// outgoing is a message on its way to the broker.
type outgoing struct {
	route

	publishing amqp091.Publishing
	sent       atomic.Pointer[amqp091.DeferredConfirmation] // set when the message was written
	returned   *amqp091.Return                              // guarded by pipe.mu
}

// outcome is the broker's answer to a message.
type outcome int

const (
	unknown  outcome = iota // no answer: the message may have been accepted
	taken                   // accepted by every queue, as durably as the queue can
	refused                 // nacked: not accepted by every queue
	returned                // no queue exists for it
)

// pipe is a channel in confirm mode. Many calls may use it at once. Their messages are written one
// after the other, and confirmed in any order.
type pipe struct {
	conn    *connection
	channel *amqp091.Channel
	calls   chan *call
	life    context.Context // its cause says why the channel ended

	mu       sync.Mutex
	underway map[string][]*outgoing // by message id
	prepared map[string]struct{}    // declarations already made
}

// call has the messages that one caller wants to write.
type call struct {
	items     []*outgoing
	abandoned atomic.Bool   // the caller has given up
	written   chan struct{} // closed when all messages are written or cannot be
}

func newPipe(conn *connection) (*pipe, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	p := &pipe{
		conn: conn, channel: channel,
		calls:    make(chan *call),
		underway: make(map[string][]*outgoing), prepared: make(map[string]struct{}),
	}
	life, end := context.WithCancelCause(context.Background())
	p.life = life
	ended := channel.NotifyClose(make(chan *amqp091.Error, 1))
	// The client passes each return to both channels, one after the other, so it can pass one to
	// the second only once the first has been read. A return is therefore known before the
	// confirmation, which the broker sends after it.
	returns := channel.NotifyReturn(make(chan amqp091.Return))
	fence := channel.NotifyReturn(make(chan amqp091.Return))
	go func() {
		for r := range returns {
			p.note(&r)
			<-fence
		}
	}()
	go func() {
		if err := <-ended; err != nil {
			end(err)
		}
		end(amqp091.ErrClosed)
	}()
	go p.write()
	return p, nil
}

// note finds the returned message: the first one with its id, because the broker handles them in
// order.
func (p *pipe) note(r *amqp091.Return) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range p.underway[r.MessageId] {
		if confirmation := item.sent.Load(); confirmation != nil && confirmation.Acked() {
			continue // its return would have come earlier
		}
		if item.returned == nil && item.route == (route{r.Exchange, r.RoutingKey}) {
			r.Body = nil // the message already has the body
			item.returned = r
			return
		}
	}
}

// write writes the calls one after the other. It blocks while the server does not read.
func (p *pipe) write() {
	for {
		select {
		case c := <-p.calls:
			p.writeCall(c)
		case <-p.life.Done():
			return
		}
	}
}

func (p *pipe) writeCall(c *call) {
	defer close(c.written)
	for _, item := range c.items {
		if c.abandoned.Load() {
			return
		}
		p.mu.Lock()
		p.underway[item.publishing.MessageId] = append(p.underway[item.publishing.MessageId], item)
		p.mu.Unlock()
		confirmation, err := p.channel.PublishWithDeferredConfirm(item.exchange, item.key, true, false, item.publishing)
		if err != nil {
			return // the channel has ended, or is about to
		}
		item.sent.Store(confirmation)
	}
}

// send publishes the items and waits until the broker has answered for all of them, or until ctx or
// the channel ends. If an outcome is unknown and ctx has not ended, p.ended says why.
func (p *pipe) send(ctx context.Context, items []*outgoing) []outcome {
	c := &call{items: items, written: make(chan struct{})}
	defer p.forget(items)
	defer c.abandoned.Store(true)
	outcomes := make([]outcome, len(items))
	select {
	case p.calls <- c:
	case <-p.life.Done():
		return outcomes
	case <-ctx.Done():
		return outcomes
	}
	select {
	case <-c.written:
	case <-p.life.Done():
	case <-ctx.Done():
	}
	for i, item := range items {
		if confirmation := item.sent.Load(); confirmation != nil {
			outcomes[i] = p.await(ctx, item, confirmation)
		}
	}
	if slices.Contains(outcomes, unknown) {
		// Just before it reports why the channel ended, which the caller needs, the client may
		// refuse to write, and end the confirmations.
		select {
		case <-p.life.Done():
		case <-ctx.Done():
		}
	}
	return outcomes
}

func (p *pipe) await(ctx context.Context, item *outgoing, confirmation *amqp091.DeferredConfirmation) outcome {
	select {
	case <-confirmation.Done():
	case <-p.life.Done():
	case <-ctx.Done():
	}
	if confirmation.Acked() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if item.returned != nil {
			return returned
		}
		return taken
	}
	select {
	case <-confirmation.Done():
		if !p.channel.IsClosed() { // the end of the channel would have ended every confirmation
			return refused
		}
	default:
	}
	return unknown
}

// forget removes the items from those that a return can find.
func (p *pipe) forget(items []*outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, item := range items {
		id := item.publishing.MessageId
		others := slices.DeleteFunc(slices.Clone(p.underway[id]), func(other *outgoing) bool { return other == item })
		if len(others) == 0 {
			delete(p.underway, id)
		} else {
			p.underway[id] = others
		}
	}
}

// prepare declares something once.
func (p *pipe) prepare(name string, declare func(*connection) error) error {
	if p.isPrepared(name) {
		return nil
	}
	if err := declare(p.conn); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared[name] = struct{}{}
	return nil
}

func (p *pipe) isPrepared(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, done := p.prepared[name]
	return done
}

// unprepare makes the next call declare it again.
func (p *pipe) unprepare(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.prepared, name)
}

// ended returns why the channel ended, or nil.
func (p *pipe) ended() error { return context.Cause(p.life) }
