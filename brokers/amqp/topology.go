package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/pause"
)

var (
	// ErrDeclaredOtherwise: an exchange or queue exists with another declaration, and keeps it
	// until somebody changes it. The text says what differs.
	ErrDeclaredOtherwise = errors.New("amqp: the queue or exchange exists with other arguments")
	// ErrNotAllowed: the user may not declare, consume from or publish to something.
	ErrNotAllowed = errors.New("amqp: the user lacks a permission")
	// ErrNotThere: an exchange or queue does not exist, and is not declared here.
	ErrNotThere = errors.New("amqp: the queue or exchange does not exist")
)

// route is where a topic's messages are published.
type route struct{ exchange, key string }

func (t *Topology) route(topic string) route {
	switch t.Preset {
	case PresetQueue:
		return route{"", topic}
	case PresetRouting:
		return route{t.Exchange, topic}
	case PresetPubSub:
	}
	return route{topic, ""}
}

// queue returns a group's queue. The error is a panic of Topology.Queue.
func (t *Topology) queue(topic, group string) (name string, err error) {
	switch {
	case t.Queue != nil:
		err = callback.Call("amqp: Topology.Queue", func() error {
			name = t.Queue(topic, group)
			return nil
		})
		if err != nil {
			return "", nameError(err.Error())
		}
		return name, nil
	case t.Preset == PresetQueue:
		return topic, nil
	default:
		return topic + "_" + group, nil
	}
}

// The secondary queues of a work queue.
func deadQueue(queue string) string { return queue + ".dead" }

func retryQueue(queue string, step time.Duration) string { return queue + ".retry." + step.String() }

// nameError says why a name is invalid.
type nameError string

func (e nameError) Error() string { return string(e) }

// checkName returns an error for an invalid name, or one that the client would cut.
func checkName(what, name string) error {
	switch {
	case name == "":
		return nameError("amqp: the " + what + " is empty: name one")
	case len(name) > wire.LongestName:
		return nameError(fmt.Sprintf("amqp: the name of the %s has %d bytes, at most %d are possible: shorten %.40q…", what, len(name), wire.LongestName, name))
	case strings.HasPrefix(name, "amq."):
		return nameError(fmt.Sprintf("amqp: the name of the %s begins with amq., which the broker keeps for itself: rename %q", what, name))
	}
	return nil
}

// quorum returns the arguments of all our quorum queues. Both are needed so that nothing is lost
// between a queue and its queue of dead letters.
func quorum(deadLettersTo string) amqp091.Table {
	return amqp091.Table{
		"x-queue-type":              "quorum",
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": deadLettersTo,
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	}
}

// arguments returns a work queue's arguments. They do not depend on the server's version, so an
// upgrade finds them unchanged. A version ignores those that it does not know.
func (b *Broker) arguments(queue string) amqp091.Table {
	t := &b.config.Topology
	arguments := amqp091.Table{}
	if t.QueueType == QueueQuorum {
		steps := b.config.Consume.RetryDelays
		arguments = quorum(deadQueue(queue))
		arguments["x-delivery-limit"] = int64(t.DeliveryLimit)
		arguments["x-delayed-retry-type"] = "all"
		arguments["x-delayed-retry-min"] = steps[0].Milliseconds()
		arguments["x-delayed-retry-max"] = steps[len(steps)-1].Milliseconds()
	}
	maps.Copy(arguments, t.Arguments)
	return arguments
}

// declareRoute declares what Publish needs.
func (b *Broker) declareRoute(conn *connection, topic string) error {
	t := &b.config.Topology
	r := t.route(topic)
	if err := checkName("topic", topic); err != nil {
		return err
	}
	if t.AsIs {
		return nil
	}
	if t.Preset == PresetQueue {
		queue, err := t.queue(topic, "")
		if err != nil {
			return err
		}
		return b.declareQueue(conn, topic, queue)
	}
	return declaring(conn, "exchange "+r.exchange, func(ch *amqp091.Channel) error { return b.declareExchange(ch, r) })
}

func (b *Broker) declareExchange(ch *amqp091.Channel, r route) error {
	kind := "fanout"
	if b.config.Topology.Preset == PresetRouting {
		kind = string(b.config.Topology.ExchangeType)
	}
	return ch.ExchangeDeclare(r.exchange, kind, true, false, false, false, nil)
}

// declareQueue declares what a subscriber of the topic needs.
func (b *Broker) declareQueue(conn *connection, topic, queue string) error {
	t := &b.config.Topology
	r := t.route(topic)
	if err := errors.Join(checkName("topic", topic), checkName("queue", queue)); err != nil {
		return err
	}
	if t.AsIs {
		return nil
	}
	// The longest name that is derived from it.
	if err := checkName("retry queue", retryQueue(queue, longestStep)); err != nil {
		return err
	}
	return declaring(conn, "queue "+queue, func(ch *amqp091.Channel) error {
		if t.QueueType == QueueQuorum {
			if _, err := ch.QueueDeclare(deadQueue(queue), true, false, false, false, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(deadLetterLimit)}); err != nil {
				return err
			}
		}
		if _, err := ch.QueueDeclare(queue, true, false, false, false, b.arguments(queue)); err != nil {
			return err
		}
		if r.exchange == "" {
			return nil
		}
		if err := b.declareExchange(ch, r); err != nil {
			return err
		}
		return ch.QueueBind(queue, r.key, r.exchange, false, nil)
	})
}

// deadLetterLimit is the delivery limit of the queues of dead letters. They have no regular
// consumer, and looking at them must not lose messages.
const deadLetterLimit = 1 << 30

// declareRetry declares a step's retry queue. Its messages return to the work queue by themselves,
// through an exchange of their own that identifies them.
func (b *Broker) declareRetry(conn *connection, queue string, step time.Duration) error {
	name := retryQueue(queue, step)
	err := declaring(conn, "retry queue "+name, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	isNew := errors.Is(err, ErrNotThere)
	if err != nil && !isNew {
		return err
	}
	err = declaring(conn, "retry queue "+name, func(ch *amqp091.Channel) error {
		back := wire.RetryExchange(queue)
		if err := ch.ExchangeDeclare(back, "fanout", true, false, true, false, nil); err != nil {
			return err
		}
		if err := ch.QueueBind(queue, "", back, false, nil); err != nil {
			return err
		}
		arguments := quorum(queue)
		arguments["x-dead-letter-exchange"] = back
		arguments["x-message-ttl"] = step.Milliseconds()
		_, err := ch.QueueDeclare(name, true, false, false, false, arguments)
		return err
	})
	if err == nil && isNew {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.young[name] = time.Now().Add(youth)
	}
	return err
}

// youth is how long a new quorum queue can be lost, with its content, when its node is killed: it
// takes the node about a second to have the queue on disk.
const youth = 2 * time.Second

// awaitAge waits until a queue created here is no longer young.
func (b *Broker) awaitAge(ctx context.Context, name string) {
	b.mu.Lock()
	safe, young := b.young[name]
	if young && time.Now().After(safe) {
		delete(b.young, name)
		young = false
	}
	b.mu.Unlock()
	if young {
		pause.Sleep(ctx, time.Until(safe))
	}
}

// declaring uses a separate channel, because a refusal closes it.
func declaring(conn *connection, what string, declare func(*amqp091.Channel) error) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := declare(ch); err != nil {
		return explainDeclaration(what, err)
	}
	return ch.Close()
}

// explainDeclaration adds a fix to a refusal. It returns other errors unchanged.
func explainDeclaration(what string, err error) error {
	var protocol *amqp091.Error
	if !errors.As(err, &protocol) {
		return err
	}
	switch protocol.Code {
	case amqp091.PreconditionFailed:
		same := cmp.Or(setInstead(what, protocol.Reason), "use the same parameters here as where it was declared")
		return fmt.Errorf("%w: %s: %w: %s, delete it once it is empty, or use it as it is with declare=false", ErrDeclaredOtherwise, what, err, same)
	case amqp091.AccessRefused:
		return fmt.Errorf("%w: %s: %w: allow it with rabbitmqctl set_permissions, or declare it elsewhere and write declare=false", ErrNotAllowed, what, err)
	case amqp091.NotFound:
		return fmt.Errorf("%w: %s: %w: declare it, or write declare=true", ErrNotThere, what, err)
	default:
		return err
	}
}

// permanent reports whether an error stays until somebody changes something.
func permanent(err error) bool {
	_, misnamed := errors.AsType[nameError](err)
	return misnamed || errors.Is(err, ErrDeclaredOtherwise) || errors.Is(err, ErrNotAllowed) || errors.Is(err, ErrNotThere)
}
