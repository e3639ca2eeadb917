package field

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// none is what a field with the check off may have in place of a number or a duration.
const none = "-1"

// Set sets a field from its text, and returns the fix if the text is wrong. Lists are
// written [a, b], or without the brackets.
func (f Field) Set(v reflect.Value, text string) (fix string) {
	if f.List {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	}
	if strings.Contains(f.check, "|") {
		if fix := oneOf(text, strings.Split(f.check, "|")); fix != "" {
			return fix
		}
	}
	if t, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		if err := t.UnmarshalText([]byte(text)); err != nil {
			return err.Error()
		}
		return ""
	}
	switch into := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if text == none && f.check == "off" {
			d, err = -1, nil
		}
		if err != nil {
			return "use a duration such as 500ms, 30s or 24h"
		}
		*into = d
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return "use a whole number such as 10"
		}
		*into = n
	case *bool:
		_, on, named := strings.Cut(f.check, "|")
		if !named && text != "true" && text != "false" {
			return "use true or false"
		}
		*into = text == cmp.Or(on, "true")
	case *[]time.Duration:
		*into = []time.Duration{}
		for _, item := range Items(text) {
			d, err := time.ParseDuration(item)
			if err != nil {
				return "use durations such as 1s,10s,1m"
			}
			*into = append(*into, d)
		}
	case *[]string:
		*into = Items(text)
	default:
		v.SetString(text)
	}
	return ""
}

// Take is Set for a text that somebody has written: the zero that stands for the default is
// refused as well, where it is not allowed. What is refused leaves the zero.
func (f Field) Take(v reflect.Value, text string) (fix string) {
	if fix = f.Set(v, text); fix == "" {
		fix = f.fix(v)
	}
	if fix != "" {
		v.SetZero()
	}
	return fix
}

// Items returns the values of a list such as a, b.
func Items(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Text returns a value as a file has it, without the secrets of types that hide them.
func (f Field) Text(v reflect.Value) string {
	var text string
	switch value := v.Interface().(type) {
	case encoding.TextMarshaler:
		b, err := value.MarshalText()
		if err != nil {
			return err.Error()
		}
		text = string(b)
	case time.Duration:
		text = Duration(value)
	case []string:
		text = strings.Join(value, ", ")
	default:
		text = fmt.Sprint(value)
	}
	if f.List {
		return "[" + text + "]"
	}
	return text
}

// Duration returns 5m rather than 5m0s.
func Duration(d time.Duration) string {
	if d == -1 {
		return none
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Error is what is wrong with a field.
type Error struct {
	Field string // its name, or its path
	Key   string // of a map in code that it belongs to, such as the name of a handler
	Text  string // what is wrong, and the fix
	Err   error  // what it is, if that has a name
}

func (p Error) Error() string {
	if p.Err != nil {
		return p.Field + " " + p.Text + ": " + p.Err.Error()
	}
	return p.Field + " " + p.Text
}

func (p Error) Unwrap() error { return p.Err }

// Errors are all that is wrong.
type Errors []Error

func (p Errors) Error() string { return errors.Join(p.Unwrap()...).Error() }

// Unwrap returns the problems.
func (p Errors) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

// Names tells how errors name fields and show their values.
type Names struct {
	Go      bool   // as in Go, not as in a file
	Prefix  string // of all names
	Key     string // of all problems
	Written func(path string) bool
	Show    func(f Field, v reflect.Value) string
}

func (n Names) of(f Field, path string) string {
	if n.Go {
		path = f.Name
	}
	return n.Prefix + path
}

// Check returns the mistakes in the struct that config points to. A zero means the default,
// unless it was written.
func Check(config any, n Names) (all Errors) {
	fields := Of(reflect.TypeOf(config).Elem())
	for _, f := range fields {
		if f.Section {
			continue
		}
		for path, v := range f.Values(config) {
			bad := func(text string) { all = append(all, Error{Field: n.of(f, path), Key: n.Key, Text: text}) }
			fix := f.fix(v)
			switch {
			case f.Missing != "" && v.IsZero():
				bad("is missing: " + f.Missing)
			case fix != "" && (!v.IsZero() || n.Written != nil && n.Written(path)):
				shown := f.Text(v)
				if n.Show != nil {
					shown = n.Show(f, v)
				}
				bad("is " + shown + ": " + fix)
			}
		}
		if least, ok := f.sibling(fields); ok && !slices.Contains(f.steps, key) {
			low, high := least.duration(config), f.duration(config)
			if set := reflect.ValueOf(config).Elem().FieldByIndex(f.steps); !set.IsZero() && high < low {
				all = append(all, Error{
					Field: n.of(f, f.Path), Key: n.Key,
					Text: "is " + Duration(high) + ", less than the " + Duration(low) + " of " + n.of(least, least.Path) + ": raise it",
				})
			}
		}
	}
	return all
}

// duration returns the duration of a field, or its default.
func (f Field) duration(config any) time.Duration {
	v := reflect.ValueOf(config).Elem().FieldByIndex(f.steps)
	if v.IsZero() {
		v = reflect.New(v.Type()).Elem()
		f.Set(v, f.Default)
	}
	return time.Duration(v.Int())
}

// fix returns the fix for a wrong value, "" for a right one.
func (f Field) fix(v reflect.Value) string {
	switch least, most, bounded := strings.Cut(f.check, ".."); {
	case f.check == "" || v.Kind() == reflect.Bool:
		return ""
	case f.check == "positive" && v.CanInt() && v.Int() > 0, f.check == "off" && (v.Int() > 0 || v.Int() == -1):
		return ""
	case f.check == "positive" && v.Type() == reflect.TypeFor[time.Duration]():
		return "use a positive duration such as 500ms, 30s or 24h"
	case f.check == "positive":
		return "use a positive number"
	case f.check == "off" && v.Type() == reflect.TypeFor[time.Duration]():
		return "use a positive duration such as 500ms, 30s or 24h, or -1 for none"
	case f.check == "off":
		return "use a positive number, or -1 for none"
	case bounded:
		low, _ := strconv.ParseInt(least, 10, 64)
		high, _ := strconv.ParseInt(most, 10, 64)
		if v.Int() < low || v.Int() > high {
			return "use a number from " + least + " to " + most
		}
		return ""
	default:
		return oneOf(f.Text(v), strings.Split(f.check, "|"))
	}
}

func oneOf(word string, words []string) string {
	if slices.Contains(words, word) {
		return ""
	}
	if best, ok := Nearest(word, words); ok {
		return "did you mean " + best + "?"
	}
	return "use " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
