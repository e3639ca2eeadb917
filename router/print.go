package router

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// String returns the configuration as a file would have it, without its secrets.
func (c Config) String() string {
	var b strings.Builder
	var open []string // sections that are written
	c.each(func(path []string, value any) {
		for len(open) > 0 && (len(open) >= len(path) || !slices.Equal(open, path[:len(open)])) {
			open = open[:len(open)-1]
		}
		for len(open) < len(path)-1 {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", len(open)), scalarText(path[len(open)]))
			open = append(open, path[len(open)])
		}
		fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", len(open)), path[len(open)], yamlText(value))
	})
	return b.String()
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// Format implements fmt.Formatter, without secrets. So do the other sections that have
// some: fmt does not ask their fields in every case.
func (c BrokerConfig) Format(f fmt.State, _ rune) { formatSection(f, c) }

// Format implements fmt.Formatter, without secrets.
func (c StoreConfig) Format(f fmt.State, _ rune) { formatSection(f, c) }

// Format implements fmt.Formatter, without secrets.
func (c InboxConfig) Format(f fmt.State, _ rune) { formatSection(f, c) }

// Format implements fmt.Formatter, without secrets.
func (c FingerprintConfig) Format(f fmt.State, _ rune) { formatSection(f, c) }

func formatSection(f fmt.State, section any) {
	in := reflect.ValueOf(section)
	parts := make([]string, 0, in.NumField())
	for i, tag := range tags(in.Type()) {
		parts = append(parts, tag+": "+text(in.Field(i).Interface()))
	}
	_, _ = io.WriteString(f, "{"+strings.Join(parts, ", ")+"}")
}

// LogValue implements slog.LogValuer.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	c.each(func(path []string, value any) {
		attrs = append(attrs, slog.String(strings.Join(path, "."), text(value)))
	})
	return slog.GroupValue(attrs...)
}

// MarshalText implements encoding.TextMarshaler.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// each calls do for every field that is set, in the order of a file.
func (c *Config) each(do func(path []string, value any)) {
	config := reflect.ValueOf(c).Elem()
	for _, f := range fields {
		if f.path == "handlers" {
			for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
				c.eachOf(name, do)
			}
		}
		if f.section() || strings.Contains(f.path, "*") {
			continue
		}
		if value := f.of(config, f.path); !value.IsZero() {
			do(strings.Split(f.path, "."), value.Interface())
		}
	}
}

func (c *Config) eachOf(handler string, do func(path []string, value any)) {
	one := c.Handlers[handler]
	for _, f := range fields {
		rest, ok := strings.CutPrefix(f.path, "handlers.*.")
		if !ok || f.section() {
			continue
		}
		if value := f.of(reflect.ValueOf(&one).Elem(), rest); !value.IsZero() {
			do(append([]string{"handlers", handler}, strings.Split(rest, ".")...), value.Interface())
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

func yamlText(value any) string {
	switch v := value.(type) {
	case []string:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = scalarText(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case string:
		return scalarText(v)
	case URL:
		return scalarText(v.String())
	case Secret:
		return scalarText(v.String())
	}
	return text(value)
}

// StarterConfig returns a configuration file with every field explained. What it does not
// set is there as a comment, with its default or an example.
func StarterConfig() string {
	const width = 88
	var b strings.Builder
	b.WriteString(`# The configuration of a service. Every field that is commented out has its default, or
# none. A variable, named in parentheses, counts more than this file. Lists are written
# [a, b] here, and a,b in a variable. Check the file with: millpond config check
`)
	first := false // of its section
	for _, f := range fields {
		depth := strings.Count(f.path, ".")
		name := f.path[strings.LastIndex(f.path, ".")+1:]
		indent := strings.Repeat("  ", depth)
		if strings.HasPrefix(f.path, "handlers.*") { // all of it is an example
			indent = "  # " + strings.Repeat("  ", depth-1)
			if name == "*" {
				fmt.Fprintf(&b, "%sstock:\n", indent)
				continue
			}
			if f.about == "" && f.example == "" {
				continue
			}
		}
		switch {
		case depth == 0:
			b.WriteByte('\n')
		case !first && !strings.HasPrefix(f.path, "handlers.*"):
			b.WriteByte('\n')
		}
		first = f.section()
		about := f.about
		if v := f.variable(); v != "" {
			about += " (" + v + ")"
		}
		for _, line := range wrap(about, width-len(indent)-len("# ")) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		switch {
		case f.section():
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
		case f.missing != "" || strings.HasPrefix(f.path, "handlers.*"):
			fmt.Fprintf(&b, "%s%s: %s\n", indent, name, f.example)
		default:
			fmt.Fprintf(&b, "%s# %s: %s\n", indent, name, f.initial+f.example)
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
