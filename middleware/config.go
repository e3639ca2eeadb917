package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// InboxConfig configures an [Inbox]. Only Service is required; zero values mean the
// defaults named at each field.
type InboxConfig struct {
	// Service names the program. With the handler's name from the router it forms
	// the consumer, under which effects are counted once. Two programs that share a
	// database must not share it. Required, without '/'.
	Service string

	// Handler is the handler's name for an inbox that is used without a router, or
	// a name that shall not follow the router's. Such an inbox serves one handler
	// only: a second one of a router is refused with ErrConsumerShared; without a
	// router they cannot be told apart.
	Handler string

	// Renamed maps a handler's name in the router to the name it had when its
	// consumer was made. Without it a renamed handler is a new consumer and runs
	// every message again that comes again.
	Renamed map[string]string

	// AcceptTopics lets known consumers read topics that they were not registered
	// for, instead of taking them for another service under the same name. Set it
	// for one start when a handler moves to another topic.
	AcceptTopics bool

	// Keys finds the message id. Default: keys.First(keys.UUID()).
	Keys keys.Chain

	Fingerprint FingerprintConfig

	// ClaimTimeout bounds each question to the store, the wait for a connection
	// included. Default: 10 s.
	ClaimTimeout time.Duration
	// HandlerTimeout is the deadline of the handler's context. The context is
	// detached from the message's: a shutdown does not cancel it. A handler that
	// returns later has failed, with ErrHandlerTimeout. Default: 30 s.
	HandlerTimeout time.Duration
	// CommitTimeout bounds the commit, and each look for an unknown one. Default: 10 s.
	CommitTimeout time.Duration
	// RecordTimeout bounds each write of what has failed: the record of an attempt with
	// what is kept of its message, and a message in quarantine. Default: 30 s.
	RecordTimeout time.Duration

	Hold   HoldConfig
	Limits Limits

	// Retry is what becomes of messages whose handler fails. RetryByHandler has other
	// policies for some handlers, by their name in the router.
	Retry          RetryPolicy
	RetryByHandler map[string]RetryPolicy
	// Keep is what is kept of such messages, and DeadLetters where copies of those go
	// that have failed for good.
	Keep        KeepConfig
	DeadLetters DeadLetterConfig

	// CacheSize is how many keys known to be completed are remembered in the
	// process at most (and half of it at least), so that their duplicates cost no
	// round trip. Default: 10,000;
	// negative: no cache.
	CacheSize int
	// CacheTTL is how long such a key is remembered. It bounds how long this
	// process may call a message a duplicate that was removed from the store on
	// purpose. Default: 10 min.
	CacheTTL time.Duration

	// Hooks observe deliveries; see [Hook].
	Hooks []Hook

	// Logger takes one line for each delivery that was not simply completed or a
	// duplicate; payloads and metadata never. Default: slog.Default().
	Logger *slog.Logger
}

// FingerprintConfig says what of a message is fingerprinted, to notice a second
// message under a used id: the payload, the header "name" that Watermill's cqrs reads,
// if there is one, and Headers. Two messages that differ in nothing of that are taken for
// one, whatever else they say.
type FingerprintConfig struct {
	// Off takes no fingerprints: every message under a completed key is a
	// duplicate. For producers that send the same event in varying bytes.
	Off bool
	// Headers are the metadata fields that say what a message is, besides its payload,
	// such as event_type: whatever a handler decides by. Without them a message that
	// differs only there is taken for a duplicate, and is not run. Never trace or retry
	// headers, which change with each delivery. With another list, duplicates of what
	// was completed or has failed under the one before are conflicts.
	Headers []string
	// Key makes fingerprints HMACs, for payloads so short that they could be
	// guessed. A rotated key needs a new id: fingerprints of different ids are not
	// compared.
	Key stores.FingerprintKey
}

// HoldConfig says how a delivery waits that cannot be decided now. Holding spends
// nothing; a nack may spend one of the broker's deliveries, and at its limit the
// message.
type HoldConfig struct {
	// Limit is how long one delivery is held before it is nacked. Keep it below the
	// broker's own timer (RabbitMQ: consumer_timeout, 30 min). Default: 5 min.
	Limit time.Duration
	// MinPause and MaxPause bound the growing, jittered pauses between questions.
	// Default: 20 ms and 2 s.
	MinPause, MaxPause time.Duration
	// Max is how many held deliveries of one consumer stop its intake: while there are
	// so many, further ones wait without asking the store, and the broker's in-flight
	// limit does the rest. Default: 64.
	Max int
}

// Limits are checked before the store is asked. What exceeds them is kept in
// quarantine and acked, never run.
type Limits struct {
	ID            int // bytes of a raw message id; default 255
	Payload       int // bytes; default 16 MiB
	Metadata      int // number of metadata fields; default 1,000
	MetadataBytes int // bytes of all keys and values; default 256 KiB
}

func (c *InboxConfig) setDefaults() {
	setDefault(&c.ClaimTimeout, 10*time.Second)
	setDefault(&c.HandlerTimeout, 30*time.Second)
	setDefault(&c.CommitTimeout, 10*time.Second)
	setDefault(&c.RecordTimeout, 30*time.Second)
	setDefault(&c.Keep.Timeout, 10*time.Second)
	setDefault(&c.Hold.Limit, 5*time.Minute)
	setDefault(&c.Hold.MinPause, 20*time.Millisecond)
	setDefault(&c.Hold.MaxPause, 2*time.Second)
	setDefault(&c.Hold.Max, 64)
	setDefault(&c.Limits.ID, 255)
	setDefault(&c.Limits.Payload, 16<<20)
	setDefault(&c.Limits.Metadata, 1000)
	setDefault(&c.Limits.MetadataBytes, 256<<10)
	setDefault(&c.CacheSize, 10_000)
	setDefault(&c.CacheTTL, 10*time.Minute)
	c.Retry.setDefaults()
	policies := make(map[string]RetryPolicy, len(c.RetryByHandler))
	for handler, policy := range c.RetryByHandler {
		policy.setDefaults()
		policies[handler] = policy
	}
	c.RetryByHandler = policies
	if c.Keys.IsZero() {
		c.Keys = keys.First(keys.UUID())
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = callback.Logger(c.Logger)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports every mistake at once, each with the field and the fix.
func (c *InboxConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := (stores.Consumer{Service: c.Service, Handler: "handler"}).Validate(); err != nil {
		bad("Service is %q: name the program, without '/' and control characters", c.Service)
	}
	if c.Handler != "" && len(c.Renamed) > 0 {
		bad("Handler and Renamed are both set: a fixed Handler needs no Renamed")
	}
	had := make(map[string]string, len(c.Renamed))
	for now, before := range c.Renamed {
		if other, taken := had[before]; taken {
			bad("Renamed gives %q and %q the same name %q: %w", min(now, other), max(now, other), before, ErrConsumerShared)
		}
		had[before] = now
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"ClaimTimeout", c.ClaimTimeout},
		{"HandlerTimeout", c.HandlerTimeout},
		{"CommitTimeout", c.CommitTimeout},
		{"RecordTimeout", c.RecordTimeout},
		{"Keep.Timeout", c.Keep.Timeout},
		{"Hold.Limit", c.Hold.Limit},
		{"Hold.MinPause", c.Hold.MinPause},
		{"CacheTTL", c.CacheTTL},
	} {
		if d.value < 0 {
			bad("%s is %s: use a positive duration, or 0 for the default", d.field, d.value)
		}
	}
	if c.Hold.MaxPause < c.Hold.MinPause {
		bad("Hold.MaxPause is %s, less than Hold.MinPause %s: raise it", c.Hold.MaxPause, c.Hold.MinPause)
	}
	c.Retry.validate("Retry", bad)
	for _, handler := range slices.Sorted(maps.Keys(c.RetryByHandler)) {
		policy := c.RetryByHandler[handler]
		policy.validate(fmt.Sprintf("RetryByHandler[%q]", handler), bad)
	}
	c.Keep.validate(bad)
	c.DeadLetters.validate(bad)
	for _, l := range []struct {
		field string
		value int
	}{
		{"Hold.Max", c.Hold.Max},
		{"Limits.ID", c.Limits.ID},
		{"Limits.Payload", c.Limits.Payload},
		{"Limits.Metadata", c.Limits.Metadata},
		{"Limits.MetadataBytes", c.Limits.MetadataBytes},
	} {
		if l.value < 0 {
			bad("%s is %d: use a positive number, or 0 for the default", l.field, l.value)
		}
	}
	const kind = 2 // bytes in front of a raw id
	if c.Limits.ID > stores.MaxIDBytes-kind {
		bad("Limits.ID is %d: stores take at most %d", c.Limits.ID, stores.MaxIDBytes-kind)
	}
	if c.Fingerprint.Off && c.Keys.NeedsFingerprint() {
		bad("Fingerprint.Off with Keys %q: such ids may name another message in time, which only the fingerprint notices: turn it on, or use other keys", c.Keys)
	}
	for _, header := range c.Fingerprint.Headers {
		switch strings.ToLower(header) {
		case "traceparent", "tracestate", "baggage", "x-death", "x-delivery-count":
			bad("Fingerprint.Headers has %q, which changes with each delivery: remove it", header)
		}
	}
	for i, hook := range c.Hooks {
		if !isHook(hook) {
			bad("Hooks[%d] is a %T, which implements none of the hook interfaces", i, hook)
		}
	}
	return errors.Join(errs...)
}
