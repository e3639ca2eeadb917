package router

import (
	"encoding"
	"reflect"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
)

const variablePrefix = "MILLPOND_"

// fields are all fields of a file, in its order. They are the source of the starter file, the
// variables, the defaults and the checks.
var fields = slices.DeleteFunc(field.Of(reflect.TypeFor[Config]()), func(f field.Field) bool { return f.Path == "" })

// entries are the sections with names below them.
var entries = []string{"destinations", "handlers"}

// known returns the field of a path, which has * for the name of a handler or a destination.
func known(path string) (field.Field, bool) {
	i := slices.IndexFunc(fields, func(f field.Field) bool { return f.Path == path })
	if i < 0 {
		return field.Field{}, false
	}
	return fields[i], true
}

// below returns the names of the fields of a section; "" is the whole file.
func below(path string) []string {
	var names []string
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f.Path, join(path, "")); ok && name != "*" && !strings.Contains(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// join appends a name to a path. With an empty name it returns the prefix of the paths
// below.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// set sets a field of the configuration from text. If the text is wrong it returns the fix. key
// is the name of its handler or destination, if any.
func (c *Config) set(f field.Field, key, text string) (fix string) {
	f.Edit(c, key, func(v reflect.Value) { fix = f.Set(v, text) })
	return scrub(fix)
}

// value returns the value of a field outside of entries.
func (c *Config) value(f field.Field) (found reflect.Value) {
	for _, v := range f.Values(c) {
		found = v
	}
	return found
}

// at returns the field with a path, including those of handlers and destinations.
func (c *Config) at(path string) (f field.Field, found reflect.Value, ok bool) {
	for _, f := range fields {
		if f.Section {
			continue
		}
		for here, v := range f.Values(c) {
			if here == path {
				return f, v, true
			}
		}
	}
	return f, found, false
}

// plainText returns a value as text, with its secrets.
func plainText(f field.Field, v reflect.Value) string {
	if secret, ok := reflect.TypeAssert[interface{ Reveal() string }](v); ok {
		return secret.Reveal()
	}
	return f.Text(v)
}

// shown returns a value for messages, without its secrets.
func shown(f field.Field, v reflect.Value) string {
	if _, ok := reflect.TypeAssert[Secret](v); ok {
		return hidden
	}
	return quoted(f.Text(v))
}

// shownText returns the text of a field for messages, without its secrets.
func shownText(f field.Field, v reflect.Value, text string) string {
	if into, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(v.Type())); ok && into.UnmarshalText([]byte(text)) == nil {
		return shown(f, reflect.ValueOf(into).Elem())
	}
	if f.List && !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	return quoted(text)
}
