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

// Config configures a [Broker]. Only Servers is required. Each field that a URL can set has its
// parameter in the package documentation.
type Config struct {
	Servers []string // host or host:port

	TLS         *tls.Config // nil: no TLS
	Credentials string      `config:"credentials"` // path of a file with a user's JWT and seed; empty: none

	// ConnectTimeout bounds New, and each request that Subscribe makes.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// CreateStreams creates a stream for a topic without one, and the stream that keeps the
	// server's advisories about messages at their delivery limit.
	CreateStreams bool `config:"create_streams"`
	Replicas      int  `config:"replicas" default:"1" check:"positive"` // of created streams

	Consume Consume `config:""`
	Publish Publish `config:""`

	// Options are added last to the connection's, so that they take precedence.
	Options []natsgo.Option
}

// Consume configures subscribers. AckWait and StartAtNewest apply when the server's consumer is
// created. Subscribe refuses an existing consumer with another DeliveryLimit, or, if Ordered is
// set, without it.
type Consume struct {
	// Consumer is the pattern for the name of the durable consumer, with {topic} and {group}.
	// Characters that are not allowed in a name become _, and a hash is appended.
	Consumer string `config:"consumer" default:"{group}-{topic}"`

	// AckWait is how long the server waits for a sign of life of an unsettled message, which a
	// handler's message sends automatically. At least 1 second.
	AckWait time.Duration `config:"ack_wait" default:"30s" check:"positive"`

	// DeliveryLimit is how often a message is delivered. At the limit it stays in its stream and is
	// not delivered again; another stream keeps the server's advisory. Zero: no limit.
	DeliveryLimit int `config:"delivery_limit" check:"positive"`

	// Ordered allows one unsettled message of the group at a time, in all processes together, so
	// that a nacked one blocks those behind it.
	Ordered bool `config:"ordered"`

	// StartAtNewest makes a new group begin with messages published from then on.
	StartAtNewest bool `config:"start" check:"oldest|newest"`

	// RedeliveryDelay is the first pause before a nacked message is redelivered if its GiveBack
	// sets none. It doubles with each delivery, up to the shorter of 30 seconds and 30 times
	// itself.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"1s" check:"positive"`

	// Unmarshal, if not nil, replaces the wire format for reading. If it returns an error or
	// panics, that becomes Delivery.Undecodable, and the message is read in the wire format. It is
	// called for each delivery, and must not keep or change the message.
	Unmarshal func(jetstream.Msg) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// MsgID sends the UUID as Nats-Msg-Id, which becomes Delivery.NativeID. The server then drops
	// messages that are published again with the same UUID within the stream's duplicate window.
	MsgID bool `config:"msg_id"`

	// Timeout bounds Publish while the server does not answer.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`
}

const pkg = "nats"

// validate returns an error that names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		if len(c.Servers) == 0 || slices.Contains(c.Servers, "") {
			wrong("Servers", fmt.Sprintf("%q", c.Servers), "name one server at least, as host:port")
		}
		if slices.ContainsFunc(c.Servers, func(s string) bool { return strings.Contains(s, "@") }) { // the error does not quote it
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
