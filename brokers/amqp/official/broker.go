package official

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/internal/account"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// Broker is a RabbitMQ broker. It is safe for concurrent use.
type Broker struct {
	config  Config
	base    *amqp.Broker // examines the server and declares; watermill-amqp does the rest
	account account.Account
	open    wrapped.Set
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// Ping checks whether the server answers; see amqp.Broker.Ping.
func (b *Broker) Ping(ctx context.Context) error { return b.base.Ping(ctx) }

// New connects to the broker. The error names every invalid field, or says why the broker cannot be
// used; then it wraps brokers.ErrUnavailable and comes within Config.ConnectTimeout.
func New(ctx context.Context, config Config) (*Broker, error) {
	config.Consume.RedeliveryDelay = cmp.Or(config.Consume.RedeliveryDelay, 100*time.Millisecond)
	config.Publish.MaxBytes = cmp.Or(config.Publish.MaxBytes, 16<<20) // max_message_size of RabbitMQ 4
	base, err := amqp.New(ctx, config.Config)
	if err != nil {
		return nil, err
	}
	of := account.Of(base)
	config.Config = of.Config().(amqp.Config)
	return &Broker{config: config, base: base, account: of, open: wrapped.Set{Package: "amqp/official"}}, nil
}

// Subscriber returns a new subscriber. The error names every invalid field, or wraps
// brokers.ErrClosed. Subscribe declares the group's queue. Its errors wrap brokers.ErrClosed,
// brokers.ErrUnavailable, amqp.ErrDeclaredOtherwise, amqp.ErrNotAllowed or amqp.ErrNotThere.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	silent := config
	silent.Logger = nil // its messages would describe the other adapter
	subscriber, err := b.base.Subscriber(silent)
	if err != nil {
		return nil, err
	}
	declaring := subscriber.(*amqp.Subscriber) // it consumes nothing, and ends with the broker
	return b.open.Subscriber(config, &wrapped.Subscriber{
		Notice:     "Messages are given back by basic.nack, failed ones too, and one is in flight for each Subscribe; amqp:// rejects failed ones, and has many in flight",
		Serial:     true,
		Initialize: func(_ context.Context, topic string) error { return declaring.SubscribeInitialize(topic) },
		Source: func(topic string, config brokers.SubscriberConfig) (wrapped.Source, error) {
			return &source{broker: b, declaring: declaring, config: config, topic: topic}, nil
		},
	})
}

// unavailable tells a lost broker from a refusal.
func unavailable(err error) error {
	known := []error{brokers.ErrClosed, brokers.ErrUnavailable, amqp.ErrDeclaredOtherwise, amqp.ErrNotAllowed, amqp.ErrNotThere}
	if slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) }) {
		return err
	}
	return fmt.Errorf("amqp/official: %w: %w", brokers.ErrUnavailable, err)
}

// Capabilities describes the server as far as watermill-amqp uses it.
func (b *Broker) Capabilities() brokers.Capabilities {
	c := b.base.Capabilities()
	c.DelayedGiveBack = true // by holding the message
	if c.FreeGiveBack && c.DeliveryLimit.Max > 0 {
		// A nack does not count there, and cannot be told from a failed handler. Only lost
		// connections count.
		c.DeliveryLimit = brokers.DeliveryLimit{}
	}
	return c
}

// Close closes the open subscribers, as Subscriber.Close does, and then the publishers, which
// finish their running calls. It may be called again.
func (b *Broker) Close() error {
	b.open.Close()
	return b.base.Close()
}

// The URL schemes of this adapter.
const (
	Scheme    = amqp.Scheme + suffix
	SchemeTLS = amqp.SchemeTLS + suffix

	suffix = "+watermill"
)

// Config configures a [Broker]. Only Addresses is required.
type Config struct {
	// The configuration of brokers/amqp, all of it.
	amqp.Config

	// Watermill, if not nil, may change the configuration of every watermill-amqp subscriber and
	// publisher, such as the consumer's name or arguments. It is called once for each. Changes of
	// the marshaler, the names of exchanges and queues, the topology, confirmations or the dialer
	// break promises.
	Watermill func(*wmamqp.Config)
}

func init() {
	for _, scheme := range []string{Scheme, SchemeTLS} {
		brokers.DefaultMux().Handle(scheme, Open)
		brokers.DefaultMux().HandleCheck(scheme, Check)
		brokers.DefaultMux().HandleExposure(scheme, exposure)
	}
}

// Open connects to the broker that a URL names. The package documentation lists the parameters. One
// error lists everything that is wrong with the URL, without user info and without values that may
// be secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// Check returns the error that [Open] returns before it connects. It is a brokers.Checker.
func Check(u *url.URL) error { return urlmux.Parsed(ParseURL)(u) }

func exposure(u *url.URL) error {
	plain := *u
	plain.Scheme = strings.TrimSuffix(u.Scheme, suffix)
	return amqp.Exposure(&plain)
}

// ParseURL returns a URL's configuration, so that a program can change it before it calls [New].
// Its errors are those of [Open] before it connects.
func ParseURL(u *url.URL) (Config, error) {
	plain := *u
	plain.Scheme = strings.TrimSuffix(u.Scheme, suffix)
	base, err := amqp.ParseURL(&plain)
	return Config{Config: base}, err
}

// Format prints the configuration without the password, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.Config.String()) }
