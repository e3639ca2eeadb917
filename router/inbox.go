package router

import (
	"maps"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// inboxConfig returns the configuration of the inbox.
func (c *Config) inboxConfig(deadLetters message.Publisher) middleware.InboxConfig {
	in := c.Inbox
	in.Service = c.Service
	in.Renamed, in.RetryByHandler, in.LeaseByHandler = maps.Clone(in.Renamed), maps.Clone(in.RetryByHandler), maps.Clone(in.LeaseByHandler)
	if in.Renamed == nil {
		in.Renamed = make(map[string]string)
	}
	if in.RetryByHandler == nil {
		in.RetryByHandler = make(map[string]middleware.RetryPolicy)
	}
	if in.LeaseByHandler == nil {
		in.LeaseByHandler = make(map[string]middleware.LeaseConfig)
	}
	in.BatchByHandler = maps.Clone(in.BatchByHandler)
	if in.BatchByHandler == nil {
		in.BatchByHandler = make(map[string]middleware.BatchConfig)
	}
	if key := c.FingerprintKey.Reveal(); key != "" {
		in.Fingerprint.Key = stores.NewFingerprintKey(uint8(c.FingerprintKeyID), []byte(key)) //nolint:gosec // at most 255
	}
	if in.DeadLetters.Publisher == nil && in.DeadLetters.Topic != "" {
		in.DeadLetters.Publisher = deadLetters
	}
	for name, handler := range c.Handlers {
		if handler.RenamedFrom != "" {
			in.Renamed[name] = handler.RenamedFrom
		}
		if !reflect.ValueOf(handler.Retry).IsZero() {
			in.RetryByHandler[name] = c.retryOf(name)
		}
		if handler.Lease.On {
			lease := handler.Lease.LeaseConfig
			field.SetDefaults(&lease)
			in.LeaseByHandler[name] = lease
		}
		if handler.Batch.On {
			batch := handler.Batch.BatchConfig
			field.SetDefaults(&batch)
			in.BatchByHandler[name] = batch
		}
	}
	return in
}

// retryOf returns a handler's policy: the service's, overlaid with the handler's own.
func (c *Config) retryOf(handler string) middleware.RetryPolicy {
	own, retry := c.Handlers[handler].Retry, c.Inbox.Retry
	if set, ok := c.Inbox.RetryByHandler[handler]; ok {
		retry = set
	}
	overlay(reflect.ValueOf(&retry).Elem(), reflect.ValueOf(own))
	if own.Backoff.Max == 0 {
		retry.Backoff.Max = max(retry.Backoff.Max, retry.Backoff.Min)
	}
	return retry
}

// overlay copies the fields of a struct that are not zero.
func overlay(into, from reflect.Value) {
	for i := range from.NumField() {
		switch {
		case from.Field(i).Kind() == reflect.Struct:
			overlay(into.Field(i), from.Field(i))
		case !from.Field(i).IsZero():
			into.Field(i).Set(from.Field(i))
		}
	}
}

// groupOf returns a handler's consumer group.
func (c *Config) groupOf(handler string) string {
	if group := c.Handlers[handler].Group; group != "" {
		return group
	}
	return c.Broker.Group + "." + handler
}

// inFlightOf returns how many messages of a handler may be in flight.
func (c *Config) inFlightOf(handler string) int {
	if n := c.Handlers[handler].InFlight; n != 0 {
		return n
	}
	return c.Broker.InFlight
}
