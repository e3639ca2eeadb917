package sqlstore

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// DefaultPrefix begins the name of every millpond table.
const DefaultPrefix = "millpond_"

// Names are the configurable names of the tables. Only identifiers from an allow-list are valid, so
// SQL text needs no quoting.
type Names struct {
	Schema string // "" is the connection's default schema
	Prefix string
}

// The prefix and the longest table name together must fit into the shortest limit of any database,
// 63 bytes on Postgres.
var (
	identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	prefix     = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,29}$`)
)

// NewNames returns validated names. Errors name the configuration's field.
func NewNames(schema, prefix string) (Names, error) {
	n := Names{Schema: schema, Prefix: cmp.Or(prefix, DefaultPrefix)}
	if err := n.validate(); err != nil {
		return n, fmt.Errorf("Config.%w", err)
	}
	return n, nil
}

// validate returns an error that names the field and the rule.
func (n Names) validate() error {
	if n.Schema != "" && !identifier.MatchString(n.Schema) {
		return fmt.Errorf("Schema is %q: use a-z, 0-9 and _, not starting with a digit, at most 40 characters", n.Schema)
	}
	if !prefix.MatchString(n.Prefix) {
		return fmt.Errorf("TablePrefix is %q: use a-z, 0-9 and _, not starting with a digit, at most 30 characters", n.Prefix)
	}
	return nil
}

// Table returns the full name of a table, such as "public.millpond_inbox".
func (n Names) Table(name string) string {
	if n.Schema == "" {
		return n.Prefix + name
	}
	return n.Schema + "." + n.Prefix + name
}

// Expand replaces {prefix} and {schema.} in SQL text: "{schema.}" becomes "name."
// or nothing.
func (n Names) Expand(sql string) string {
	schema := ""
	if n.Schema != "" {
		schema = n.Schema + "."
	}
	return strings.NewReplacer("{schema.}", schema, "{prefix}", n.Prefix).Replace(sql)
}
