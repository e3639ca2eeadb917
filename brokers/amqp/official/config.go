package official

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
)

// The URL schemes of this adapter.
const (
	Scheme    = amqp.Scheme + suffix
	SchemeTLS = amqp.SchemeTLS + suffix

	suffix = "+watermill"
)

// Config configures a [Broker]. Only Addresses is required.
type Config struct {
	// What brokers/amqp understands, all of it.
	amqp.Config

	// Watermill, if not nil, has the last word on the configuration of every
	// watermill-amqp subscriber and publisher, such as its consumer's name or arguments.
	// It is called once for each. Settings that change the marshaler, names of exchanges
	// and queues, the topology, confirmations or the dialer break promises.
	Watermill func(*wmamqp.Config)
}

func init() {
	for _, scheme := range []string{Scheme, SchemeTLS} {
		brokers.DefaultMux().Handle(scheme, Open)
		brokers.DefaultMux().HandleCheck(scheme, Check)
		brokers.DefaultMux().HandleExposure(scheme, exposure)
	}
}

// Open connects to the broker that a URL names; the package documentation lists the
// parameters. All mistakes in the URL are returned as one error, which repeats no user
// info and no value that may be a secret. It is a brokers.Opener, for programs with a
// mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, config)
}

// Check returns the error that [Open] returns before it connects. It is a
// brokers.Checker.
func Check(u *url.URL) error {
	_, err := ParseURL(u)
	return err
}

func exposure(u *url.URL) error {
	plain := *u
	plain.Scheme = strings.TrimSuffix(u.Scheme, suffix)
	return amqp.Exposure(&plain)
}

// ParseURL returns the configuration that a URL stands for, so that a program can add
// to it what a URL cannot say before it calls [New]. Its errors are those of [Open]
// before it connects.
func ParseURL(u *url.URL) (Config, error) {
	plain := *u
	plain.Scheme = strings.TrimSuffix(u.Scheme, suffix)
	base, err := amqp.ParseURL(&plain)
	return Config{Config: base}, err
}

// settle fills in what this package needs itself of what brokers/amqp fills in for its
// own use, and takes the password out.
func (c *Config) settle() (credentials amqp091.Authentication) {
	port := "5672"
	if c.TLS != nil {
		port = "5671"
	}
	addresses := make([]string, 0, len(c.Addresses))
	for _, address := range c.Addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), port)
		}
		addresses = append(addresses, address)
	}
	c.Addresses = addresses
	for field, value := range map[*time.Duration]time.Duration{
		&c.ConnectTimeout:          10 * time.Second,
		&c.Heartbeat:               10 * time.Second,
		&c.Consume.RedeliveryDelay: 100 * time.Millisecond,
		&c.Consume.ConsumerTimeout: 30 * time.Minute,
		&c.Publish.Timeout:         30 * time.Second,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Publish.MaxBytes == 0 {
		c.Publish.MaxBytes = 16 << 20 // max_message_size of RabbitMQ 4
	}
	if c.VirtualHost == "" {
		c.VirtualHost = "/"
	}
	if c.ConnectionName == "" {
		c.ConnectionName = "millpond"
	}
	if c.Username == "" {
		c.Username, c.Password = os.Getenv(amqp.UsernameVariable), os.Getenv(amqp.PasswordVariable)
	}
	if c.Username == "" {
		c.Username, c.Password = "guest", "guest"
	}
	credentials = &amqp091.PlainAuth{Username: c.Username, Password: c.Password}
	c.Password = ""
	return credentials
}
