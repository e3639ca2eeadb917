package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

var (
	// ErrUnroutable: no queue exists for the message. It is not stored.
	ErrUnroutable = errors.New("amqp: no queue takes the message")
	// ErrRefused: the broker nacked the message. If there are several queues, some may have it.
	ErrRefused = errors.New("amqp: the broker has refused the message")
	// ErrTooLarge: the message exceeds the server's limit. It wraps brokers.ErrTooLarge.
	ErrTooLarge = fmt.Errorf("amqp: %w", brokers.ErrTooLarge)
)

// window is how many messages of a call may be unconfirmed at a time.
const window = 1000

// work is a set of messages that are published together.
type work struct {
	name    string                  // what must be declared
	declare func(*connection) error // declares it
	items   []*outgoing             // each attempt uses copies
	errs    []error                 // for each item; nil if it was accepted
	open    []int                   // items without a result
	alone   bool                    // the items must not share a channel with others
}

// publish publishes the items. For each it returns nil if the broker accepted it, or an error.
// Items without an answer are published again, with the same id, until ctx ends. So are items
// without a queue, shortly after a lost connection.
func (b *Broker) publish(ctx context.Context, name string, declare func(*connection) error, items []*outgoing) []error {
	w := &work{name: name, declare: declare, items: items, errs: make([]error, len(items))}
	for i := range items {
		w.open = append(w.open, i)
	}
	pace := outage.Pace()
	for {
		before := len(w.open)
		reason := b.try(ctx, w)
		if len(w.open) < before {
			pace.Reset()
		}
		switch {
		case len(w.open) == 0:
			return w.errs
		case permanent(reason), errors.Is(reason, brokers.ErrClosed):
			w.fail(reason)
			return w.errs
		case !pause.Sleep(ctx, pace.NextBackOff()):
			if !errors.Is(reason, brokers.ErrUnavailable) {
				reason = fmt.Errorf("%w: %w", brokers.ErrUnavailable, reason)
			}
			w.fail(reason)
			return w.errs
		}
	}
}

func (w *work) fail(reason error) {
	for _, i := range w.open {
		w.errs[i] = reason
	}
	w.open = nil
}

// try publishes the open items on one channel. It returns why some are still open.
func (b *Broker) try(ctx context.Context, w *work) error {
	p, err := b.ready(ctx, w)
	if err != nil {
		return err
	}
	if w.alone {
		defer func() { go func() { _ = p.channel.Close() }() }()
	}
	size := window
	if w.alone {
		size = 1
	}
	for len(w.open) > 0 {
		part, rest := w.open[:min(size, len(w.open))], w.open[min(size, len(w.open)):]
		items := make([]*outgoing, len(part))
		for i, n := range part {
			items[i] = &outgoing{route: w.items[n].route, publishing: w.items[n].publishing}
		}
		outcomes := p.send(ctx, items)
		ended := p.ended()
		var left []int
		var early error
		for i, n := range part {
			w.errs[n] = b.judge(outcomes[i], items[i], ended, w.alone)
			if outcomes[i] == returned {
				p.unprepare(w.name) // the declared object may have been deleted
				if p.conn.recovering() {
					early, w.errs[n] = w.errs[n], nil
					left = append(left, n)
				}
			}
			if outcomes[i] == unknown && w.errs[n] == nil {
				left = append(left, n)
			}
		}
		w.open = slices.Concat(left, rest)
		if early != nil {
			return early
		}
		if len(w.open) > 0 && (len(left) > 0 || ended != nil) {
			return b.whyUnknown(ctx, p, ended, w)
		}
	}
	return nil
}

// ready returns a channel on which the needed objects are declared. It waits until ctx ends.
func (b *Broker) ready(ctx context.Context, w *work) (*pipe, error) {
	conn, err := b.publishing.connect(ctx)
	if err != nil {
		return nil, err
	}
	if p := b.shared(conn); p != nil && !w.alone && p.isPrepared(w.name) {
		return p, nil
	}
	select {
	case b.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, b.silent(ctx, conn)
	}
	opened := make(chan *pipe, 1)
	err = b.ask(ctx, conn, func() error {
		defer func() { <-b.opening }()
		p, err := b.open(conn, w.alone)
		if err == nil {
			err = p.prepare(w.name, w.declare)
		}
		opened <- p
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-opened, nil
}

// shared returns the shared channel, or nil if there is none now.
func (b *Broker) shared(conn *connection) *pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.present == nil || b.present.conn != conn || b.present.ended() != nil {
		return nil
	}
	return b.present
}

func (b *Broker) open(conn *connection, alone bool) (*pipe, error) {
	if p := b.shared(conn); p != nil && !alone {
		return p, nil
	}
	p, err := newPipe(conn)
	if err != nil || alone {
		return p, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.present = p
	return p, nil
}

// judge interprets an outcome. For an unknown one, nil means: try again.
func (b *Broker) judge(o outcome, item *outgoing, ended error, alone bool) error {
	switch o {
	case taken:
		return nil
	case returned:
		return fmt.Errorf("%w: exchange %q, routing key %q: %s: subscribe, or declare a queue and bind it, before you publish",
			ErrUnroutable, item.exchange, item.key, item.returned.ReplyText)
	case refused:
		return fmt.Errorf("%w: %w: a queue is full, or has lost its majority: publish again when it has room", ErrRefused, brokers.ErrUnavailable)
	case unknown:
	}
	var protocol *amqp091.Error
	if !errors.As(ended, &protocol) {
		return nil
	}
	if size, limit, ok := tooLarge(protocol); ok {
		if len(item.publishing.Body) != size {
			return nil
		}
		b.mu.Lock()
		b.tooLarge = limit + 1
		b.mu.Unlock()
		return errTooLarge(size, limit, "the server's max_message_size")
	}
	named := item.exchange != "" && strings.Contains(protocol.Reason, "exchange '"+item.exchange+"'")
	switch {
	case protocol.Code == amqp091.AccessRefused && named:
		return explainDeclaration("exchange "+item.exchange, ended)
	case protocol.Code == amqp091.NotFound && named && b.config.Topology.AsIs:
		return explainDeclaration("exchange "+item.exchange, ended)
	case protocol.Code == amqp091.PreconditionFailed && alone:
		return fmt.Errorf("%w: %w: change the property that it names", ErrRefused, ended)
	}
	return nil
}

// whyUnknown returns why the broker has not answered.
func (b *Broker) whyUnknown(ctx context.Context, p *pipe, ended error, w *work) error {
	if ended == nil {
		return b.silent(ctx, p.conn)
	}
	if protocol, ok := errors.AsType[*amqp091.Error](ended); ok && protocol.Code == amqp091.PreconditionFailed {
		if _, _, known := tooLarge(protocol); !known {
			w.alone = true // to find out which message is the cause
		}
	}
	return ended
}

// silent returns why a server that can be reached does not answer.
func (*Broker) silent(ctx context.Context, conn *connection) error {
	if conn.blockedBy() != "" {
		return blocked(conn)
	}
	return fmt.Errorf("the broker has not answered in time: %w", cmp.Or(context.Cause(ctx), context.DeadlineExceeded))
}

func blocked(conn *connection) error {
	return fmt.Errorf("the broker takes no messages from publishers now (%s): free memory or disk space there", conn.blockedBy())
}

func errTooLarge(size, limit int, whose string) error {
	return fmt.Errorf("%w: it has %d bytes, %s is %d: make it smaller, or raise that", ErrTooLarge, size, whose, limit)
}

var sizes = regexp.MustCompile(`message size (\d+) is larger than .*max size (\d+)`)

// tooLarge reads the two sizes from the server's refusal.
func tooLarge(err *amqp091.Error) (size, limit int, ok bool) {
	m := sizes.FindStringSubmatch(err.Reason)
	if err.Code != amqp091.PreconditionFailed || m == nil {
		return 0, 0, false
	}
	size, _ = strconv.Atoi(m[1])
	limit, _ = strconv.Atoi(m[2])
	return size, limit, true
}
