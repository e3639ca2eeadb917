package router

import (
	"cmp"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// sources has the origins of a configuration's values. A Config has it behind a pointer, because
// it contains secrets.
type sources struct {
	where map[string]string // by path: "millpond.yaml:7", or a variable
	text  map[string]string // by path, as read: the program may have changed it since
	file  map[string]string // the file's values that a variable overrides
	lines map[string]string // their line numbers
}

// remember keeps the origins with the configuration.
func (r *reading) remember() {
	s := &sources{where: make(map[string]string), text: make(map[string]string), file: r.overridden, lines: make(map[string]string)}
	for path, at := range r.origins {
		if f, v, ok := r.config.at(path); ok {
			s.where[path], s.text[path] = at.where, plainText(f, v)
		}
	}
	maps.Copy(s.lines, r.overriddenAt)
	r.config.sources = s
}

// Origin returns the origin of a field's value: a file with its line, or a variable. It is "" for
// defaults, and for values that the program set. Fields are named as in a file, such as
// "store.url" or "handlers.stock.in_flight".
func (c *Config) Origin(path string) string {
	f, v, ok := c.at(path)
	if c.sources == nil || !ok || plainText(f, v) != c.sources.text[path] {
		return ""
	}
	return c.sources.where[path]
}

// named returns a field for an error, with the variable that set it, because the file may have
// another value.
func (c *Config) named(field string) string {
	if origin := c.Origin(field); strings.HasPrefix(origin, variablePrefix) {
		return field + " (" + origin + ")"
	}
	return field
}

// Warnings lists settings that are valid but may not be intended: a password that could be sent
// without verified TLS, a variable that overrides the file's store or broker, an address on all
// interfaces. [New] logs them; millpond config check shows them, and with --strict treats them as
// errors. No line has a secret.
func (c *Config) Warnings() []Problem {
	var all []Problem
	warn := func(field, text string) {
		all = append(all, Problem{Where: c.Origin(field), Field: field, Text: text})
	}
	for _, u := range c.urls() {
		if s := c.sources; s != nil && s.lines[u.path] != "" && strings.HasPrefix(c.Origin(u.path), variablePrefix) && !samePlace(u.url.Reveal(), s.file[u.path]) {
			warn(u.path, "is "+u.url.String()+", which overrides the "+NewURL(s.file[u.path]).String()+" of "+s.lines[u.path]+": unset the variable if the file is right")
		}
		if text := exposureOf(u.mux, u.url); text != "" && !c.RequireTLS {
			warn(u.path, "is "+u.url.String()+": "+text)
		}
	}
	if host, _, err := net.SplitHostPort(c.HTTP.Listen); err == nil && host == "" {
		warn("http.listen", "is "+quoted(c.HTTP.Listen)+", all interfaces, without authentication: name an address, such as 127.0.0.1, or 0.0.0.0 for all")
	}
	return all
}

// located is a field with a URL of a kind, broker or store, and the mux that checks it.
type located struct {
	path, kind string
	url        URL
	mux        checker
}

func (c *Config) urls() []located {
	mux := cmp.Or(c.Program.Brokers, brokers.DefaultMux())
	all := []located{
		{"broker.url", "broker", c.Broker.URL, mux},
		{"store.url", "store", c.Store.URL, cmp.Or(c.Program.Stores, stores.DefaultMux())},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Destinations)) {
		if u := c.Destinations[name].URL; u.Reveal() != "" {
			all = append(all, located{destinationURL(name), "broker", u, mux})
		}
	}
	return all
}

// exposureOf returns how the password of a URL may be exposed, or "".
func exposureOf(mux checker, u URL) string {
	scheme, _, _ := strings.Cut(u.Reveal(), ":")
	if !slices.Contains(mux.Schemes(), strings.ToLower(scheme)) {
		return ""
	}
	if err := mux.Exposure(u.Reveal()); err != nil {
		return withoutSecrets(err, u).Error()
	}
	return ""
}

// placeParameters name a server, a database, tables or queues in the parameters of a URL.
var placeParameters = []string{
	"host", "hostaddr", "port", "dbname", "database", "search_path", "millpond_schema", "millpond_prefix", "prefix",
	"region", "endpoint", "queue", "exchange",
}

// samePlace reports whether two URLs name the same servers, database and tables, with any
// user and options.
func samePlace(a, b string) bool {
	one, err := url.Parse(a)
	if err != nil {
		return false
	}
	other, err := url.Parse(b)
	if err != nil || one.Scheme != other.Scheme || one.Host != other.Host || strings.Trim(one.Path, "/") != strings.Trim(other.Path, "/") {
		return false
	}
	these, those := one.Query(), other.Query()
	return !slices.ContainsFunc(placeParameters, func(name string) bool { return !slices.Equal(these[name], those[name]) })
}
