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

// sources says where the values of a configuration were written. A Config has it behind a
// pointer, because it knows secrets.
type sources struct {
	where map[string]string // by path: "millpond.yaml:7", or a variable
	text  map[string]string // by path, as it was read: the program may have changed it
	file  map[string]string // what the file says where a variable counts more
	lines map[string]string // where that stands
}

// remember keeps what only the reading knows.
func (r *reading) remember() {
	s := &sources{where: make(map[string]string), text: make(map[string]string), file: r.overridden, lines: make(map[string]string)}
	for _, f := range fields {
		if at, ok := r.origins[f.Path]; ok && !f.Section {
			s.where[f.Path], s.text[f.Path] = at.where, plainText(f, r.config.value(f))
		}
	}
	maps.Copy(s.lines, r.overriddenAt)
	r.config.sources = s
}

// Origin says where the value of a field was written: a file with its line, or the name of a
// variable. It is "" for defaults, and for what the program has set. Fields are named as in
// a file, such as "store.url"; those of handlers are not known.
func (c *Config) Origin(path string) string {
	f, ok := known(path)
	if c.sources == nil || !ok || f.Section || strings.Contains(path, "*") || plainText(f, c.value(f)) != c.sources.text[path] {
		return ""
	}
	return c.sources.where[path]
}

// named is a field in an error, with the variable that it comes from: the file may say
// something else.
func (c *Config) named(field string) string {
	if origin := c.Origin(field); strings.HasPrefix(origin, variablePrefix) {
		return field + " (" + origin + ")"
	}
	return field
}

// Warnings says what a service runs with, and nobody may have meant: a password that can
// travel without verified TLS, a variable that names another store or broker than the file,
// an address that is all interfaces. [New] logs them; millpond config check shows them, and
// takes them for mistakes with --strict. No line has a secret.
func (c *Config) Warnings() []Problem {
	var all []Problem
	warn := func(field, text string) {
		all = append(all, Problem{Where: c.Origin(field), Field: field, Text: text})
	}
	for _, u := range c.urls() {
		if s := c.sources; s != nil && s.lines[u.path] != "" && strings.HasPrefix(c.Origin(u.path), variablePrefix) && !samePlace(u.url.Reveal(), s.file[u.path]) {
			warn(u.path, "is "+u.url.String()+", which counts more than the "+NewURL(s.file[u.path]).String()+" of "+s.lines[u.path]+": unset the variable if the file is right")
		}
		if text := exposureOf(u.mux, u.url); text != "" && !c.RequireTLS {
			warn(u.path, "is "+u.url.String()+": "+text)
		}
	}
	if host, _, err := net.SplitHostPort(c.HTTP.Listen); err == nil && host == "" {
		warn("http.listen", "is "+quoted(c.HTTP.Listen)+", all interfaces, and nobody is asked who they are: name an address, such as 127.0.0.1, or 0.0.0.0 if all are meant")
	}
	return all
}

// located is a field with a URL, and who knows what it means.
type located struct {
	path string
	url  URL
	mux  checker
}

func (c *Config) urls() []located {
	return []located{
		{"broker.url", c.Broker.URL, cmp.Or(c.Program.Brokers, brokers.DefaultMux())},
		{"store.url", c.Store.URL, cmp.Or(c.Program.Stores, stores.DefaultMux())},
	}
}

// exposureOf says where the password of a URL can travel that it must not, "" if nowhere.
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

// samePlace reports whether two URLs name the same servers, database and tables, whoever
// asks for them and how.
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
