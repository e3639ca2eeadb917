package router

import (
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// inboxConfig is what the configuration means for the inbox. The configuration is valid.
func (c *Config) inboxConfig(deadLetters message.Publisher) middleware.InboxConfig {
	chain, _ := keyChain(c.Inbox.Keys, c.Inbox.Scopes)
	in := middleware.InboxConfig{
		Service:        c.Service,
		Renamed:        make(map[string]string),
		AcceptTopics:   c.Inbox.AcceptTopics,
		Keys:           chain,
		ClaimTimeout:   c.Inbox.ClaimTimeout,
		HandlerTimeout: c.Inbox.HandlerTimeout,
		CommitTimeout:  c.Inbox.CommitTimeout,
		RecordTimeout:  c.Inbox.RecordTimeout,
		Fingerprint: middleware.FingerprintConfig{
			Off:     c.Inbox.Fingerprint.Off,
			Headers: c.Inbox.Fingerprint.Headers,
		},
		Hold: middleware.HoldConfig{
			Limit:    c.Inbox.Hold.Limit,
			MinPause: c.Inbox.Hold.MinPause,
			MaxPause: c.Inbox.Hold.MaxPause,
			Max:      c.Inbox.Hold.Max,
		},
		Limits: middleware.Limits{
			ID:            c.Inbox.Limits.ID,
			Payload:       c.Inbox.Limits.Payload,
			Metadata:      c.Inbox.Limits.Metadata,
			MetadataBytes: c.Inbox.Limits.MetadataBytes,
		},
		CacheSize:      c.Inbox.CacheSize,
		CacheTTL:       c.Inbox.CacheTTL,
		Retry:          c.Retry.policy(),
		RetryByHandler: make(map[string]middleware.RetryPolicy),
		Keep:           middleware.KeepConfig{Off: c.Keep.Off, MaxBytes: c.Keep.MaxBytes},
	}
	if key := c.Inbox.Fingerprint.Key.Reveal(); key != "" {
		in.Fingerprint.Key = stores.NewFingerprintKey(uint8(c.Inbox.Fingerprint.KeyID), []byte(key)) //nolint:gosec // keyNumber: at most 255
	}
	if topic := c.DeadLetters.Topic; topic != "" {
		in.DeadLetters = middleware.DeadLetterConfig{Publisher: deadLetters, Topic: topic}
	}
	for name, handler := range c.Handlers {
		if handler.RenamedFrom != "" {
			in.Renamed[name] = handler.RenamedFrom
		}
		if handler.Retry != (RetryConfig{}) {
			in.RetryByHandler[name] = c.retryOf(name).policy()
		}
	}
	return in
}

func (r RetryConfig) policy() middleware.RetryPolicy {
	p := middleware.RetryPolicy{
		MaxAttempts:  r.MaxAttempts,
		MaxAge:       r.MaxAge,
		MaxUncounted: r.MaxUncounted,
		MaxImmediate: r.MaxImmediate,
		Backoff:      middleware.BackoffConfig{Min: r.BackoffMin, Max: r.BackoffMax},
		Placement:    stores.PlacementParked,
		OrderWait:    r.OrderWait,
	}
	if r.Placement == "redelivered" {
		p.Placement = stores.PlacementRedelivered
	}
	if field, ok := strings.CutPrefix(r.Order, "metadata:"); ok {
		p.OrderKey = middleware.OrderByMetadata(field)
	} else if r.Order == "key" {
		p.OrderKey = middleware.OrderByKey
	}
	return p
}
