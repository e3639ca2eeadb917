package nats

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/internal/urlquery"
)

// Config configures a [Broker]. Servers is required. Each field that a URL can set has its
// parameter in the package documentation.
type Config struct {
	Servers []string // host or host:port

	TLS         *tls.Config // nil: no TLS
	Credentials string      `config:"credentials"` // file with a user's JWT and seed; empty: none

	// ConnectTimeout bounds New, and each question that Subscribe asks.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// CreateStreams makes a stream for a topic that no stream takes, and the stream that
	// keeps what the server says of messages at their delivery limit.
	CreateStreams bool `config:"create_streams"`
	Replicas      int  `config:"replicas" default:"1" check:"positive"` // of streams that are made

	Consume Consume `config:""`
	Publish Publish `config:""`

	// Options are added to those of the connection, last, so that they win.
	Options []natsgo.Option
}

// Consume configures subscribers. AckWait and StartAtNewest count when the server's consumer
// is made. Subscribe refuses one that was made with another DeliveryLimit, or without
// Ordered where that is set.
type Consume struct {
	// Consumer makes the name of the durable consumer from {topic} and {group}. Characters
	// that a name may not have become their hash.
	Consumer string `config:"consumer" default:"{group}-{topic}"`

	// AckWait is how long the server waits for a sign of life of an unsettled message,
	// which is given while a handler has it. At least 1 second.
	AckWait time.Duration `config:"ack_wait" default:"30s" check:"positive"`

	// DeliveryLimit is how often a message is delivered. At the limit it stays in its
	// stream and is not delivered again; a stream of advisories says so. Zero: no limit.
	DeliveryLimit int `config:"delivery_limit" check:"positive"`

	// Ordered lets one message of the group be unsettled at a time, in all processes
	// together, so that a nacked one keeps those behind it waiting.
	Ordered bool `config:"ordered"`

	// StartAtNewest lets a new group begin with what is published from then on.
	StartAtNewest bool `config:"start" check:"oldest|newest"`

	// RedeliveryDelay is the first pause before a nacked message comes again, if its
	// GiveBack names none; it doubles with each delivery, up to 30 times itself and 30
	// seconds.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"1s" check:"positive"`

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
	MsgID bool `config:"msg_id"`

	// Timeout bounds Publish while the server does not answer.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`
}

const pkg = "nats"

// validate names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		if len(c.Servers) == 0 || slices.Contains(c.Servers, "") {
			wrong("Servers", fmt.Sprintf("%q", c.Servers), "name one server at least, as host:port")
		}
		if slices.ContainsFunc(c.Servers, func(s string) bool { return strings.Contains(s, "@") }) { // it is not repeated
			wrong("Servers", "an address with a user", fmt.Sprintf("remove it, and set %s and %s, or Credentials", UsernameVariable, PasswordVariable))
		}
		if name := c.Consume.Consumer; name != "" && !(strings.Contains(name, "{topic}") && strings.Contains(name, "{group}")) {
			wrong("Consume.Consumer", fmt.Sprintf("%q", name), "it must contain {topic} and {group}")
		}
		if wait := c.Consume.AckWait; wait > 0 && wait < time.Second {
			wrong("Consume.AckWait", wait, "use 1s or more")
		}
	})
}
