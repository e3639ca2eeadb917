package router

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/field"
)

// String returns the configuration as a file, without its secrets.
func (c Config) String() string {
	var b strings.Builder
	var open []string // sections already written
	c.each(func(path []string, f field.Field, v reflect.Value) {
		for len(open) > 0 && (len(open) >= len(path) || !slices.Equal(open, path[:len(open)])) {
			open = open[:len(open)-1]
		}
		for len(open) < len(path)-1 {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", len(open)), scalarText(path[len(open)]))
			open = append(open, path[len(open)])
		}
		fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", len(open)), path[len(open)], yamlText(f, v))
	})
	return b.String()
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// Format implements fmt.Formatter, without secrets: fmt does not always call the methods of
// fields.
func (c BrokerConfig) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{url: %s, group: %s, in_flight: %d, delivery_limit: %d, replay_horizon: %s}", c.URL, c.Group, c.InFlight, c.DeliveryLimit, c.ReplayHorizon)
}

// Format implements fmt.Formatter, without secrets.
func (c StoreConfig) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{url: %s, migrate: %t}", c.URL, c.Migrate)
}

// LogValue implements slog.LogValuer.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	c.each(func(path []string, f field.Field, v reflect.Value) {
		attrs = append(attrs, slog.String(strings.Join(path, "."), f.Text(v)))
	})
	return slog.GroupValue(attrs...)
}

// MarshalText implements encoding.TextMarshaler.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// each calls do for every set field, in the order of a file.
func (c *Config) each(do func(path []string, f field.Field, v reflect.Value)) {
	for _, f := range fields {
		switch {
		case slices.Contains(entries, f.Path):
			c.eachOf(f.Path, do)
		case f.Section || strings.Contains(f.Path, "*"):
		default:
			if v := c.value(f); !v.IsZero() {
				do(strings.Split(f.Path, "."), f, v)
			}
		}
	}
}

// eachOf is each for a section with names below it, one name after the other.
func (c *Config) eachOf(section string, do func(path []string, f field.Field, v reflect.Value)) {
	whole, _ := known(section)
	for _, name := range slices.SortedFunc(slices.Values(c.value(whole).MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }) {
		for _, f := range fields {
			rest, ok := strings.CutPrefix(f.Path, section+".*.")
			if !ok || f.Section {
				continue
			}
			for path, v := range f.Values(c) {
				if path == section+"."+name.String()+"."+rest && !v.IsZero() {
					do(append([]string{section, name.String()}, strings.Split(rest, ".")...), f, v)
				}
			}
		}
	}
}

// plain text needs no quotes in YAML.
var plain = regexp.MustCompile(`^[A-Za-z][\w./-]*(:[\w./?&=+-]+)*$`)

func scalarText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

func yamlText(f field.Field, v reflect.Value) string {
	text := f.Text(v)
	if f.List {
		items := field.Items(strings.Trim(text, "[]"))
		for i, item := range items {
			items[i] = scalarText(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	switch v.Interface().(type) {
	case int, bool, time.Duration:
		return text
	}
	return scalarText(text)
}

// StarterConfig returns a configuration file with every field explained. Fields that it
// does not set are comments, with their defaults or examples.
func StarterConfig() string {
	const width = 88
	var b strings.Builder
	b.WriteString(`# The configuration of a service. A field that is commented out has its default, if any.
# The variable in parentheses overrides the field. Lists are written [a, b] here, and a,b
# in a variable. Check the file with: millpond config check
`)
	first := false // of its section
	for _, f := range fields {
		depth := strings.Count(f.Path, ".")
		name := f.Path[strings.LastIndex(f.Path, ".")+1:]
		indent, example := strings.Repeat("  ", depth), strings.Contains(f.Path, "*") // all of it
		switch {
		case strings.HasPrefix(f.Path, "handlers.*.retry."), strings.HasPrefix(f.Path, "handlers.*.lease."), strings.HasPrefix(f.Path, "handlers.*.batch."):
			continue
		case example:
			indent = "  # " + strings.Repeat("  ", depth-1)
		case depth == 0 || !first:
			b.WriteByte('\n')
		}
		first = f.Section
		about := f.About
		if v := variableOf(f, exampleDestination); v != "" {
			about += " (" + v + ")"
		}
		for _, line := range wrap(about, width-len(indent)-len("# ")) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		switch {
		case f.Path == "destinations.*":
			fmt.Fprintf(&b, "%s%s:\n", indent, exampleDestination)
		case name == "*":
			fmt.Fprintf(&b, "%sstock:\n", indent)
		case f.Section && !example:
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
		case f.Missing != "" || example || f.Path == "retention.window": // without it the tables grow for ever
			fmt.Fprintf(&b, "%s%s: %s\n", indent, name, f.Example)
		default:
			fmt.Fprintf(&b, "%s# %s: %s\n", indent, name, f.Default+f.Example)
		}
	}
	return b.String()
}

// wrap breaks text into lines.
func wrap(text string, width int) []string {
	var lines []string
	var line string
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
