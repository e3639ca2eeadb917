package router

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// check checks every field by itself, and then how they fit together.
func (r *reading) check() {
	config := reflect.ValueOf(&r.config).Elem()
	for _, f := range fields {
		if rest, ok := strings.CutPrefix(f.path, "handlers.*."); ok {
			for _, name := range slices.Sorted(maps.Keys(r.config.Handlers)) {
				one := r.config.Handlers[name]
				r.checkField(f, "handlers."+name+"."+rest, f.of(reflect.ValueOf(&one).Elem(), rest))
			}
			continue
		}
		if !f.section() {
			r.checkField(f, f.path, f.of(config, f.path))
		}
	}
	r.relations()
	for _, u := range r.config.urls() {
		r.checkURL(u.path, u.url, u.mux)
		if r.config.RequireTLS && !r.reported[u.path] {
			if text := exposureOf(u.mux, u.url); text != "" {
				r.badf(r.origins[u.path], u.path, "is %s, and require_tls is true: %s", u.url, text)
			}
		}
	}
}

// checker is a mux of brokers or of stores.
type checker interface {
	Schemes() []string
	Check(rawURL string) error
	Exposure(rawURL string) error
}

// checkURL asks the adapter of a URL, if it is linked, what is wrong with it.
func (r *reading) checkURL(path string, raw URL, mux checker) {
	scheme, _, _ := strings.Cut(raw.Reveal(), ":")
	if r.reported[path] || !slices.Contains(mux.Schemes(), scheme) {
		return
	}
	err := mux.Check(raw.Reveal())
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(withoutSecrets(err, raw).Error(), "\n") {
		r.badf(r.origins[path], path, "is wrong: %s", line)
	}
}

func (r *reading) checkField(f field, path string, value reflect.Value) {
	here, written := r.origins[path]
	switch {
	case r.reported[path]: // it could not be read
	case f.missing != "" && value.IsZero():
		if !written {
			here = origin{where: r.name}
		}
		r.badf(here, path, "is missing: %s, or set %s", f.missing, f.variable())
	case f.check == nil || value.IsZero() && !written: // the default
	default:
		if fix := f.check(value.Interface()); fix != "" {
			r.badf(here, path, "is %s: %s", shown(value, plainText(value.Interface())), fix)
		}
	}
}

// relations checks fields against each other, with the defaults of those not set.
func (r *reading) relations() {
	c := r.config
	c.Handlers = maps.Clone(c.Handlers)
	c.setDefaults()
	compare := func(low, high string, least, most time.Duration) {
		if least <= most || r.reported[low] || r.reported[high] {
			return
		}
		here, ok := r.origins[high]
		if !ok {
			here = r.origins[low]
		}
		r.badf(here, high, "is %s, less than the %s of %s: raise it", shortDuration(most), shortDuration(least), low)
	}
	compare("inbox.hold.min_pause", "inbox.hold.max_pause", c.Inbox.Hold.MinPause, c.Inbox.Hold.MaxPause)
	compare("retry.backoff_min", "retry.backoff_max", c.Retry.BackoffMin, c.Retry.BackoffMax)

	if chain, fix := keyChain(c.Inbox.Keys, c.Inbox.Scopes); fix == "" && c.Inbox.Fingerprint.Off && chain.NeedsFingerprint() {
		r.badf(r.origins["inbox.fingerprint.off"], "inbox.fingerprint.off",
			"is true with inbox.keys %s: such ids may name another message in time, which only the fingerprint notices: remove it, or use other keys", text(c.Inbox.Keys))
	}
	if c.Inbox.Fingerprint.Off && c.Inbox.Fingerprint.Key != (Secret{}) {
		r.badf(r.origins["inbox.fingerprint.off"], "inbox.fingerprint.off", "is true with inbox.fingerprint.key set: remove one of them")
	}

	had := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(r.config.Handlers)) {
		path := "handlers." + name
		retry := c.retryOf(name)
		compare(path+".retry.backoff_min", path+".retry.backoff_max", retry.BackoffMin, retry.BackoffMax)
		before := r.config.Handlers[name].RenamedFrom
		if before == "" {
			continue
		}
		if other, taken := had[before]; taken {
			r.badf(r.origins[path+".renamed_from"], path+".renamed_from", "is %s as for handler %s: two handlers would share one consumer, and one would lose its messages", quoted(before), quoted(other))
		}
		had[before] = name
	}
}

// setDefaults fills what is zero.
func (c *Config) setDefaults() {
	config := reflect.ValueOf(c).Elem()
	for _, f := range fields {
		if f.initial == "" || f.section() || strings.Contains(f.path, "*") {
			continue
		}
		if value := f.of(config, f.path); value.IsZero() {
			setText(value, f.initial)
			if f.path == "retry.backoff_max" || f.path == "inbox.hold.max_pause" { // never below what is set
				least := f.of(config, strings.Replace(f.path, "max", "min", 1))
				value.SetInt(max(value.Int(), least.Int()))
			}
		}
	}
	if c.Broker.Group == "" {
		c.Broker.Group = c.Service
	}
}

// retryOf is what a handler's own policy and the service's make together.
func (c *Config) retryOf(handler string) RetryConfig {
	own := c.Handlers[handler].Retry
	retry := c.Retry
	from, into := reflect.ValueOf(own), reflect.ValueOf(&retry).Elem()
	for i := range from.NumField() {
		if !from.Field(i).IsZero() {
			into.Field(i).Set(from.Field(i))
		}
	}
	if own.BackoffMax == 0 {
		retry.BackoffMax = max(retry.BackoffMax, retry.BackoffMin)
	}
	return retry
}

// groupOf is the group of a handler at the broker.
func (c *Config) groupOf(handler string) string {
	if group := c.Handlers[handler].Group; group != "" {
		return group
	}
	return c.Broker.Group + "." + handler
}

// inFlightOf is how many messages of a handler may be in flight.
func (c *Config) inFlightOf(handler string) int {
	if n := c.Handlers[handler].InFlight; n != 0 {
		return n
	}
	return c.Broker.InFlight
}
