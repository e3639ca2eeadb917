package nats

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config configures a [Broker]. Servers is required. Each field that a URL can set has its
// parameter in the package documentation.
type Config struct {
	Servers []string // host or host:port

	TLS         *tls.Config // nil: no TLS
	Credentials string      // file with a user's JWT and seed; empty: none

	// ConnectTimeout bounds New, and each question that Subscribe asks. Zero means 10
	// seconds.
	ConnectTimeout time.Duration

	// CreateStreams makes a stream for a topic that no stream takes, and the stream that
	// keeps what the server says of messages at their delivery limit.
	CreateStreams bool
	Replicas      int // of streams that are made; zero means 1

	Consume Consume
	Publish Publish

	// Options are added to those of the connection, last, so that they win.
	Options []natsgo.Option
}

// Consume configures subscribers. AckWait and StartAtNewest count when the server's consumer
// is made. Subscribe refuses one that was made with another DeliveryLimit, or without
// Ordered where that is set.
type Consume struct {
	// Consumer makes the name of the durable consumer from {topic} and {group}. Empty means
	// {group}-{topic}. Characters that a name may not have become their hash.
	Consumer string

	// AckWait is how long the server waits for a sign of life of an unsettled message,
	// which is given while a handler has it. Zero means 30 seconds.
	AckWait time.Duration

	// DeliveryLimit is how often a message is delivered. At the limit it stays in its
	// stream and is not delivered again; a stream of advisories says so. Zero: no limit.
	DeliveryLimit int

	// Ordered lets one message of the group be unsettled at a time, in all processes
	// together, so that a nacked one keeps those behind it waiting.
	Ordered bool

	// StartAtNewest lets a new group begin with what is published from then on.
	StartAtNewest bool

	// RedeliveryDelay is the first pause before a nacked message comes again, if its
	// GiveBack names none; it doubles with each delivery, up to 30 times itself and 30
	// seconds. Zero means 1 second.
	RedeliveryDelay time.Duration

	// Unmarshal, if not nil, replaces the wire format for reading. Its error, or its panic,
	// becomes Delivery.Undecodable; the message is then what the wire format reads. It is
	// called for each delivery and must not keep or change the message.
	Unmarshal func(jetstream.Msg) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// MsgID sends the UUID as Nats-Msg-Id, which becomes Delivery.NativeID. The server then
	// drops what is published again under the same UUID within the stream's duplicate
	// window.
	MsgID bool

	// Timeout bounds Publish while the server does not answer. Zero means 30 seconds.
	Timeout time.Duration
}

const pkg = "nats"

func (c *Config) setDefaults() {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Consume.Consumer = cmp.Or(c.Consume.Consumer, "{group}-{topic}")
	c.Consume.AckWait = cmp.Or(c.Consume.AckWait, 30*time.Second)
	c.Consume.RedeliveryDelay = cmp.Or(c.Consume.RedeliveryDelay, time.Second)
	c.Publish.Timeout = cmp.Or(c.Publish.Timeout, 30*time.Second)
}

// validate names every invalid field and what to write instead.
func (c *Config) validate() error {
	var errs []error
	wrong := func(field string, value any, fix string) {
		errs = append(errs, fmt.Errorf("nats: Config.%s is %v: %s", field, value, fix))
	}
	if len(c.Servers) == 0 || slices.Contains(c.Servers, "") {
		wrong("Servers", fmt.Sprintf("%q", c.Servers), "name one server at least, as host:port")
	}
	if slices.ContainsFunc(c.Servers, func(s string) bool { return strings.Contains(s, "@") }) { // it is not repeated
		errs = append(errs, fmt.Errorf("nats: Config.Servers names a user: remove it, and set %s and %s, or Credentials", UsernameVariable, PasswordVariable))
	}
	if name := c.Consume.Consumer; name != "" && !(strings.Contains(name, "{topic}") && strings.Contains(name, "{group}")) {
		wrong("Consume.Consumer", fmt.Sprintf("%q", name), "it must contain {topic} and {group}")
	}
	for field, n := range map[string]int{"Consume.DeliveryLimit": c.Consume.DeliveryLimit, "Replicas": c.Replicas} {
		if n < 0 {
			wrong(field, n, "use a positive number, or 0 for the default")
		}
	}
	for field, d := range map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "Consume.RedeliveryDelay": c.Consume.RedeliveryDelay, "Publish.Timeout": c.Publish.Timeout,
	} {
		if d < 0 {
			wrong(field, d, "use a positive duration, or 0 for the default")
		}
	}
	if wait := c.Consume.AckWait; wait != 0 && wait < time.Second {
		wrong("Consume.AckWait", wait, "use 1s or more, or 0 for 30s")
	}
	return errors.Join(errs...)
}
