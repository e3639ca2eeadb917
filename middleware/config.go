package middleware

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// InboxConfig configures an [Inbox]. Only Service is required; zero values mean the
// defaults of their tags. A service's file has the fields with a tag, under the same rules.
type InboxConfig struct {
	// Service names the program. With the handler's name from the router it forms
	// the consumer, under which effects are counted once. Two programs that share a
	// database must not share it. Required, without '/'.
	Service string

	// Handler names the handler of an inbox without a router, or replaces the router's
	// name. Such an inbox serves one handler: a second one of a router gets
	// ErrConsumerShared; without a router a second one goes unnoticed.
	Handler string

	// Renamed maps a handler's name in the router to the name it had when its consumer was
	// registered. Otherwise a renamed handler is a new consumer, and runs every redelivered
	// message again.
	Renamed map[string]string

	// Keys finds the message id. Scopes, in addition to those of Keys, say where it is unique.
	Keys   keys.Chain  `config:"keys" default:"[uuid]" about:"Where a message's id comes from: uuid (Watermill's), metadata:<field>, payload:<field>.<field> (of JSON), native (the broker's), broker_key, coordinates. If several are listed, the first one that a message has is used; see docs/guarantees.md before you use more than one."`
	Scopes keys.Scopes `config:"scopes" example:"[topic]" about:"Where ids are unique: topic, event_type:<metadata field>, tenant:<metadata field>. Default: everywhere."`

	// HandlerTimeout is the deadline of the handler's context, which a shutdown does not
	// cancel. A handler that returns nil later fails with ErrHandlerTimeout.
	HandlerTimeout time.Duration `config:"handler_timeout" default:"30s" check:"positive" about:"The deadline of a handler. If it returns later, the attempt has failed."`
	// CommitTimeout also bounds each look after an unknown commit.
	CommitTimeout time.Duration `config:"commit_timeout" default:"10s" check:"positive" about:"How long a commit may take."`
	ClaimTimeout  time.Duration `config:"claim_timeout" default:"10s" check:"positive" about:"How long a claim or a look may take, including the wait for a connection."`
	RecordTimeout time.Duration `config:"record_timeout" default:"30s" check:"positive" about:"How long it may take to record a failure, or a message in quarantine, with its content."`

	// AcceptTopics lets registered consumers read other topics. Otherwise such a consumer
	// counts as another service under the same name (stores.ErrConsumerConflict).
	AcceptTopics bool `config:"accept_topics" default:"false" about:"Let handlers read other topics than they are registered for. Set it for one start when a handler moves to another topic."`

	// CacheSize bounds the cache of completed keys; at least half of it is kept. CacheTTL bounds
	// how long a message counts as a duplicate after its row was deleted.
	CacheSize int           `config:"cache_size" default:"10000" check:"off" about:"How many completed messages the process caches, so that their duplicates need no query. -1: none."`
	CacheTTL  time.Duration `config:"cache_ttl" default:"10m" check:"positive" about:"How long they are cached."`

	// MaxStale bounds how many messages go to quarantine because a purge may have deleted their
	// rows. More of them point to a mistake, such as reset offsets: further ones are held with
	// [ErrStaleFlood] until an operator accepts them.
	MaxStale int `config:"max_stale" default:"100" check:"off" about:"How many messages of a handler go to quarantine in an hour because they are older than what was purged. More of them pause its intake; see docs/retention.md. -1: any number."`

	// SuspectFor applies to subscribers that do not flag redeliveries, such as Watermill's own.
	// It should exceed the broker's wait for an ack.
	SuspectFor time.Duration `config:"suspect_for" default:"2m" check:"positive" about:"How long after a process has died every delivery of a subscriber that does not flag redeliveries is treated as a redelivery: its attempt is counted before it runs."`

	Hold        HoldConfig        `config:"hold" about:"How a delivery is held that cannot be decided now, because another delivery of its message runs, or the store is down."`
	Fingerprint FingerprintConfig `config:"fingerprint" about:"How another message under a used id (a conflict) is recognized."`
	Limits      Limits            `config:"limits" about:"The limits of a message. Larger messages go to quarantine."`

	// Retry says what becomes of messages whose handler fails. RetryByHandler replaces it for
	// single handlers, by their name in the router.
	Retry          RetryPolicy `config:"/retry" about:"What becomes of a message whose handler fails; see docs/failures.md."`
	RetryByHandler map[string]RetryPolicy

	// LeaseByHandler names the handlers, by their name in the router, whose effect is outside the
	// database, such as a payment. They run under a lease, without a transaction.
	LeaseByHandler map[string]LeaseConfig

	// BatchByHandler names the handlers, by their name in the router, whose messages share
	// transactions. The store must be a stores.Batcher.
	BatchByHandler map[string]BatchConfig

	Keep        KeepConfig       `config:"/keep" about:"What is kept of failed messages until they are completed."`
	DeadLetters DeadLetterConfig `config:"/dead_letters" about:"Copies of messages that have failed for good, in addition to their rows."`

	// Outputs lets handlers publish. nil: a handler that returns messages fails with ErrOutputs.
	Outputs *Outputs

	// Hooks observe deliveries; see [Hook].
	Hooks []Hook

	// Logger gets one line for each delivery that was neither completed nor a duplicate,
	// without payload and metadata. Default: slog.Default().
	Logger *slog.Logger
}

// FingerprintConfig says what a fingerprint covers: the payload, the header "name" of Watermill's
// cqrs if there is one, and Headers. Another message under a used id is noticed by its
// fingerprint. Messages that are equal in all of these count as one message.
type FingerprintConfig struct {
	// Off is for producers that encode the same event in varying bytes.
	Off bool `config:"off" default:"false" about:"Treat every message with a used id as a duplicate, whatever its content."`
	// Headers must not name fields that change with each delivery, such as those of traces
	// and retries. After the list changes, duplicates of older messages are conflicts.
	Headers []string `config:"headers" example:"[event_type]" about:"Metadata fields that your handlers depend on: they count as content, like the payload and cqrs' name. Without event_type here, {} with event_type=charge is a duplicate of {} with event_type=noop, and is acked without a run."`
	// Key makes fingerprints HMACs, for payloads that are short enough to guess. A rotated key
	// needs a new number: fingerprints under different keys are not compared.
	Key stores.FingerprintKey
}

// HoldConfig says how a delivery is held that cannot be decided now. Holding costs nothing;
// a nack may count towards the broker's delivery limit.
type HoldConfig struct {
	// Limit should be below the broker's own timer (RabbitMQ: consumer_timeout, 30 min).
	Limit time.Duration `config:"limit" default:"5m" check:"positive" about:"How long a delivery is held before it is given back to the broker."`
	// The pauses between claims grow, with jitter.
	MinPause time.Duration `config:"min_pause" default:"20ms" check:"positive" about:"The first pause between two claims."`
	MaxPause time.Duration `config:"max_pause" default:"2s" check:"positive" least:"MinPause" about:"The longest pause."`
	// Max bounds the held deliveries of one consumer. At the bound, further deliveries wait
	// without asking the store, until the broker's in-flight limit is reached.
	Max int `config:"max" default:"64" check:"positive" about:"How many held deliveries stop the intake of a handler."`
}

// Limits are checked before the store is asked. A message that exceeds one is quarantined and
// acked, and never run.
type Limits struct {
	ID            int `config:"id" default:"255" check:"positive" about:"Bytes of a message's id."`
	Payload       int `config:"payload" default:"16777216" check:"positive" about:"Bytes of a message's payload."`
	Metadata      int `config:"metadata" default:"1000" check:"positive" about:"Number of a message's metadata fields."`
	MetadataBytes int `config:"metadata_bytes" default:"262144" check:"positive" about:"Bytes of all metadata fields."`
}

func (c *InboxConfig) setDefaults() {
	field.SetDefaults(c)
	c.Keys = c.Keys.Scoped(c.Scopes...)
	c.Scopes = nil // Keys has them now
	c.Retry.setOrder()
	policies := make(map[string]RetryPolicy, len(c.RetryByHandler))
	for handler, policy := range c.RetryByHandler {
		field.SetDefaults(&policy)
		policy.setOrder()
		policies[handler] = policy
	}
	c.RetryByHandler = policies
	c.LeaseByHandler = maps.Clone(c.LeaseByHandler)
	for handler, lease := range c.LeaseByHandler {
		field.SetDefaults(&lease)
		c.LeaseByHandler[handler] = lease
	}
	c.BatchByHandler = maps.Clone(c.BatchByHandler)
	for handler, batch := range c.BatchByHandler {
		field.SetDefaults(&batch)
		c.BatchByHandler[handler] = batch
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = callback.Logger(c.Logger)
}

// Validate returns all errors at once, each with the field and the fix. [NewInbox] calls it.
func (c *InboxConfig) Validate() error {
	all := field.Check(c, field.Names{Go: true})
	handler := ""
	bad := func(name, format string, args ...any) {
		all = append(all, field.Error{Field: name, Key: handler, Text: fmt.Sprintf(format, args...)})
	}
	const longest = 20 * 24 * time.Hour // near the longest bound that databases accept
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"HandlerTimeout", c.HandlerTimeout}, {"CommitTimeout", c.CommitTimeout}, {"ClaimTimeout", c.ClaimTimeout}, {"RecordTimeout", c.RecordTimeout}} {
		if d.value > longest {
			bad(d.name, "is %s: use at most %s", d.value, longest)
		}
	}
	c.Retry.validate("Retry", bad)
	for _, handler = range slices.Sorted(maps.Keys(c.RetryByHandler)) {
		policy, name := c.RetryByHandler[handler], fmt.Sprintf("RetryByHandler[%q]", handler)
		all = append(all, field.Check(&policy, field.Names{Go: true, Prefix: name + ".", Key: handler})...)
		policy.validate(name, bad)
	}
	for _, handler = range slices.Sorted(maps.Keys(c.LeaseByHandler)) {
		lease, name := c.LeaseByHandler[handler], fmt.Sprintf("LeaseByHandler[%q]", handler)
		all = append(all, field.Check(&lease, field.Names{Go: true, Prefix: name + ".", Key: handler})...)
		lease.validate(name, c, bad)
	}
	for _, handler = range slices.Sorted(maps.Keys(c.BatchByHandler)) {
		batch, name := c.BatchByHandler[handler], fmt.Sprintf("BatchByHandler[%q]", handler)
		all = append(all, field.Check(&batch, field.Names{Go: true, Prefix: name + ".", Key: handler})...)
		batch.validate(name, c, bad)
		if _, leased := c.LeaseByHandler[handler]; leased {
			bad(name, "is set with LeaseByHandler: a handler under a lease has no transaction. Remove one of them")
		}
	}
	handler = ""
	all = append(all, c.validateNames()...)
	c.validateFingerprint(bad)
	c.Keep.validate(bad)
	c.DeadLetters.validate(bad)
	if c.Outputs != nil && c.Outputs.IDs != OutputIDsOwn && c.Outputs.IDs != OutputIDsDerived {
		bad("Outputs.IDs", "is %q: use OutputIDsOwn or OutputIDsDerived", c.Outputs.IDs)
	}
	const kind = 2 // prefix bytes of a raw id
	if most := stores.MaxIDBytes - kind; c.Limits.ID > most {
		bad("Limits.ID", "is %d: use a number from 1 to %d, which is what stores take", c.Limits.ID, most)
	}
	for i, hook := range c.Hooks {
		if !isHook(hook) {
			bad(fmt.Sprintf("Hooks[%d]", i), "is a %T, which implements none of the hook interfaces, such as DeliveryEndHook", hook)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// validateNames checks the fields that make up consumers.
func (c *InboxConfig) validateNames() (all []field.Error) {
	if (stores.Consumer{Service: c.Service, Handler: "handler"}).Validate() != nil {
		all = append(all, field.Error{Field: "Service", Text: fmt.Sprintf("is %q: use a short name without '/' and control characters", c.Service)})
	}
	if c.Handler != "" && len(c.Renamed) > 0 {
		all = append(all, field.Error{Field: "Renamed", Text: "is set with Handler: a fixed Handler needs none"})
	}
	had := make(map[string]string, len(c.Renamed))
	for _, now := range slices.Sorted(maps.Keys(c.Renamed)) {
		before := c.Renamed[now]
		if other, taken := had[before]; taken {
			all = append(all, field.Error{
				Field: fmt.Sprintf("Renamed[%q]", now), Key: now, Err: ErrConsumerShared,
				Text: fmt.Sprintf("is %q as for handler %q", before, other),
			})
		}
		had[before] = now
	}
	return all
}

func (c *InboxConfig) validateFingerprint(bad func(name, format string, args ...any)) {
	if c.Fingerprint.Off && c.Keys.NeedsFingerprint() {
		bad("Fingerprint.Off", "is true with ids of %s, which may name another message in time, as only the fingerprint notices: remove it, or use other keys", c.Keys)
	}
	if c.Fingerprint.Off && c.Fingerprint.Key.String() != (stores.FingerprintKey{}).String() {
		bad("Fingerprint.Off", "is true with a key: remove one of them")
	}
	for _, header := range c.Fingerprint.Headers {
		switch strings.ToLower(header) {
		case "":
			bad("Fingerprint.Headers", "has an empty name: remove it")
		case "traceparent", "tracestate", "baggage", "x-death", "x-delivery-count":
			bad("Fingerprint.Headers", "has %q, which changes with each delivery: remove it", header)
		}
	}
}
