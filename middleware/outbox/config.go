package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Config configures a [Relay]. Only Publishers is required.
type Config struct {
	// Publishers are the destinations by name; "" is for outputs without a destination. All
	// relays of a store should have the same: outputs for a missing publisher wait while this
	// relay has their part of the outbox. The caller closes the publishers after Run has
	// returned. A brokers.EachPublisher, such as those of package brokers, gets many messages per
	// call and answers for each. Other publishers get one message per call, from several
	// goroutines.
	Publishers map[string]message.Publisher

	// Codec decodes outputs that the same codec encoded; see [Encode].
	Codec *middleware.Codec

	// Keep moves published outputs to the history instead of deleting them. The window
	// retention.Config.Published limits the history; on DynamoDB Retention of the store does.
	Keep bool `config:"keep" default:"false" about:"Keep published messages in a history, so that millpond outbox replay can publish them again. The section retention can limit it (published)."`

	// MaxAttempts is how often a message may be refused before it is a dead letter. Messages that
	// are too large or cannot be encoded are dead letters at once.
	MaxAttempts int `config:"max_attempts" default:"20" check:"positive" about:"How often a destination may refuse a message before it is a dead letter."`
	// Backoff is the pause after the first refusal. It doubles with each, up to 5 minutes.
	Backoff time.Duration `config:"backoff" default:"1s" check:"positive" about:"The pause after the first refusal. It doubles with each, up to 5 minutes."`
	// BlockKeys makes a dead letter block its order key: later messages of the key wait until an
	// operator retries or discards it (stores.OutboxInspector). Otherwise they are published.
	BlockKeys bool `config:"block_keys" default:"false" about:"Let the messages of an order key wait behind a dead letter, until millpond outbox retries or discards it."`
	// Away reports whether a publisher's error says that the destination cannot be reached now.
	// Then the destination pauses, and no attempt is spent. nil means [IsAway].
	Away func(error) bool

	// PublishTimeout bounds the context of messages, within the lease. The relay waits for
	// publishers that ignore it.
	PublishTimeout time.Duration `config:"publish_timeout" default:"20s" check:"positive" about:"How long a destination may take for an answer."`
	// LeaseTTL is the time after which other relays take over the outputs of a dead one. It must
	// be longer than PublishTimeout.
	LeaseTTL time.Duration `config:"lease_ttl" default:"30s" check:"positive" about:"After this time other relays take over the messages of a dead relay. It must be longer than publish_timeout."`
	// PollInterval is how often the store is polled when nothing was to be published and no Poke
	// came. Outputs of transactions that commit late take about a second longer.
	PollInterval time.Duration `config:"poll_interval" default:"250ms" check:"positive" about:"How often the store is asked while nothing is to be published."`
	// WakeInterval is the shortest time between two wake-ups: commits of this process wake relays
	// in other processes, and theirs wake this relay, if the database can do that
	// (stores.OutboxWaker: PostgreSQL). -1, the default: no wake-ups; all relays poll. Where
	// latency matters use 25 ms in all processes; it costs handlers some throughput.
	WakeInterval time.Duration `config:"wake_interval" default:"-1" check:"off" about:"The shortest time between two wake-ups: commits of this process wake relays in others, and theirs wake this relay, if all set it, such as 25ms. Only PostgreSQL can do that; it takes a connection outside the pool and costs handlers throughput. Otherwise, and with -1, relays poll every poll_interval."`
	// AlarmSize and AlarmAge are how many messages may wait to be published, and for how long,
	// before an error is logged.
	AlarmSize int           `config:"alarm_size" default:"10000" check:"1..1000000" about:"How many messages may wait to be published before an error is logged, every minute."`
	AlarmAge  time.Duration `config:"alarm_age" default:"5m" check:"positive" about:"How long a message may wait to be published before an error is logged, every minute."`

	// DrainTimeout bounds how long Run waits at its end for running calls of publishers.
	DrainTimeout time.Duration `config:"-" default:"30s" check:"positive"`

	Hook Hook // such as that of middleware/telemetry; may be nil

	// Logger; nil is slog.Default.
	Logger *slog.Logger
}

func (c *Config) validate(store stores.Outbox) error {
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("the store is nil"))
	}
	if len(c.Publishers) == 0 {
		errs = append(errs, errors.New("Publishers is empty: name a publisher, with \"\" for outputs that name no destination"))
	}
	for name, p := range c.Publishers {
		if p == nil {
			errs = append(errs, fmt.Errorf("Publishers[%q] is nil", name))
		}
		if isOwn(p) {
			errs = append(errs, fmt.Errorf("Publishers[%q] is an outbox.Publisher, which writes into the outbox what the relay is to publish: give the publisher of a broker", name))
		}
	}
	if c.Codec != nil && (c.Codec.Name == "" || c.Codec.Decode == nil) {
		errs = append(errs, errors.New("Codec needs a Name and Decode: what cannot be decoded cannot be published"))
	}
	for _, problem := range field.Check(c, field.Names{Go: true}) {
		errs = append(errs, problem)
	}
	field.SetDefaults(c)
	if c.LeaseTTL <= c.PublishTimeout {
		errs = append(errs, fmt.Errorf("LeaseTTL is %s: it must be longer than PublishTimeout, %s", c.LeaseTTL, c.PublishTimeout))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Away == nil {
		c.Away = IsAway
	}
	if len(errs) > 0 {
		return fmt.Errorf("outbox: New: %w", errors.Join(errs...))
	}
	return nil
}

// Encode passes the metadata and payload of outputs through a codec, for
// stores.PublisherConfig.Encode. The codec needs Decode. It gets no key, and a key that it
// returns is dropped, because the database compares order keys.
func Encode(codec *middleware.Codec) func(context.Context, stores.Output) (stores.Output, error) {
	return func(ctx context.Context, o stores.Output) (stores.Output, error) {
		if codec.Decode == nil {
			return o, fmt.Errorf("outbox: codec %q: it has no Decode, so that nothing could be published", codec.Name)
		}
		kept, err := codec.Encode(ctx, middleware.Kept{Metadata: maps.Clone(o.Metadata), Payload: o.Payload})
		if err != nil {
			return o, fmt.Errorf("outbox: codec %q: %w", codec.Name, err)
		}
		o.Codec, o.Metadata, o.Payload = codec.Name, kept.Metadata, kept.Payload
		return o, nil
	}
}
