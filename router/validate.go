package router

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/middleware"
)

// check checks each field alone, and then all of them together.
func (r *reading) check() {
	written := func(path string) bool { _, ok := r.origins[path]; return ok }
	for _, problem := range field.Check(&r.config, field.Names{Written: written, Show: shown}) {
		if variable := r.variable(problem.Field); strings.HasPrefix(problem.Text, "is missing") && variable != "" {
			r.origins[problem.Field] = origin{where: r.name}
			problem.Text += ", or set " + variable
		}
		r.wrong(problem.Field, problem.Text)
	}
	r.checkSecret()
	r.checkListen()
	r.checkInbox()
	r.checkRelay()
	r.checkDestinations()
	for _, u := range r.config.urls() {
		r.checkURL(u)
	}
}

// wrong reports a problem of a field, once.
func (r *reading) wrong(path, text string) {
	if !r.reported[path] {
		r.badf(r.origins[path], path, "%s", text)
	}
}

func (r *reading) variable(path string) string {
	f, _ := known(path)
	return variableOf(f, "")
}

func (r *reading) checkSecret() {
	const least = 16
	if n := len(r.config.FingerprintKey.Reveal()); n > 0 && n < least {
		r.wrong("inbox.fingerprint.key", "is "+hidden+": use at least 16 bytes, such as from: openssl rand -base64 32")
	}
}

func (r *reading) checkListen() {
	address := r.config.HTTP.Listen
	if _, port, err := net.SplitHostPort(address); address != "" && (err != nil || port == "") {
		r.wrong("http.listen", "is "+quoted(address)+": write host:port, such as 127.0.0.1:9464")
	}
}

func (r *reading) checkRelay() {
	c := r.config.Relay
	field.SetDefaults(&c)
	if c.LeaseTTL <= c.PublishTimeout {
		r.wrong("relay.lease_ttl", fmt.Sprintf("is %s: it must be longer than relay.publish_timeout, %s", c.LeaseTTL, c.PublishTimeout))
	}
}

// checkInbox calls the inbox's own checks. Fields are named as in a file, if the file has them.
func (r *reading) checkInbox() {
	for _, name := range slices.Sorted(maps.Keys(r.config.Handlers)) {
		policy := r.config.retryOf(name)
		for _, problem := range field.Check(&policy, field.Names{Prefix: "handlers." + name + ".retry.", Show: shown}) {
			r.wrong(problem.Field, problem.Text)
		}
	}
	in := r.config.inboxConfig(nil)
	in.DeadLetters = middleware.DeadLetterConfig{} // its publisher does not exist yet
	if wrong, ok := errors.AsType[field.Errors](in.Validate()); ok {
		for _, problem := range wrong {
			r.wrong(pathOf(problem), scrub(problem.Text))
		}
	}
}

// pathOf returns the path in a file of a field of the inbox, or its name in code.
func pathOf(p field.Error) string {
	name := p.Field
	if in, _, _ := strings.Cut(name, "["); p.Key != "" {
		rest := strings.TrimPrefix(name, fmt.Sprintf("%s[%q]", in, p.Key))
		name = map[string]string{"Renamed": "Handlers.*.RenamedFrom", "RetryByHandler": "Handlers.*.Retry", "LeaseByHandler": "Handlers.*.Lease", "BatchByHandler": "Handlers.*.Batch"}[in] + rest
	}
	for _, f := range fields {
		if f.Name == name || f.Name == "Inbox."+name {
			return strings.Replace(f.Path, "*", p.Key, 1)
		}
	}
	return "Inbox." + p.Field
}

// checker is a mux of brokers or of stores.
type checker interface {
	Schemes() []string
	Check(rawURL string) error
	Exposure(rawURL string) error
}

// checkURL checks the URL of the broker or the store, with its adapter if that is imported.
func (r *reading) checkURL(u located) {
	if r.reported[u.path] {
		return
	}
	if fix := u.misfit(); fix != "" {
		r.wrong(u.path, "is "+quoted(u.url.String())+": "+fix)
		return
	}
	if scheme, _, _ := strings.Cut(u.url.Reveal(), ":"); slices.Contains(u.mux.Schemes(), scheme) {
		if err := u.mux.Check(u.url.Reveal()); err != nil {
			for line := range strings.SplitSeq(withoutSecrets(err, u.url).Error(), "\n") {
				r.badf(r.origins[u.path], u.path, "is wrong: %s", line)
			}
			return
		}
	}
	if text := exposureOf(u.mux, u.url); text != "" && r.config.RequireTLS {
		r.wrong(u.path, "is "+u.url.String()+", and require_tls is true: "+text)
	}
}

// misfit returns the fix if a URL is for the other kind.
func (u located) misfit() (fix string) {
	f, _ := known(u.kind + ".url")
	_, examples, _ := strings.Cut(f.Missing, ", such as ")
	parsed, err := url.Parse(u.url.Reveal())
	if err != nil {
		return urlmux.FixUnparsed
	}
	if parsed.Scheme == "" || parsed.Opaque != "" {
		return "write scheme://…, such as " + examples
	}
	if path, ok := adapters[strings.ToLower(parsed.Scheme)]; ok && !strings.HasPrefix(path, u.kind) {
		other, _, _ := strings.Cut(path, "/")
		return parsed.Scheme + " is one of the " + other + ": write one of the " + u.kind + "s, such as " + examples
	}
	return ""
}

// setDefaults sets defaults for zero values.
func (c *Config) setDefaults() {
	field.SetDefaults(c)
	if c.Broker.Group == "" {
		c.Broker.Group = c.Service
	}
}
