package urlquery

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
)

// Fields are the setters of the struct that config points to, by the tags of its fields; see
// package field.
func Fields(config any) map[string]Setter {
	setters := make(map[string]Setter)
	for _, f := range field.Of(reflect.TypeOf(config).Elem()) {
		if !f.Section {
			f.Edit(config, "", func(v reflect.Value) {
				setters[f.Path] = func(value string) string { return f.Take(v, value) }
			})
		}
	}
	return setters
}

// Wrong notes that a field, named as in Go, has a value that it must not have.
type Wrong func(field string, value any, fix string)

// Named says how errors name a field.
type Named func(field string) string

// InGo is what a program calls a field of Config.
func InGo(field string) string { return "Config." + field }

// InURL names the fields of the struct that config points to by their parameters. One without
// is the list of hosts.
func InURL(config any) Named {
	fields := field.Of(reflect.TypeOf(config).Elem())
	return func(name string) string {
		i := slices.IndexFunc(fields, func(f field.Field) bool { return f.Name == name })
		if i < 0 {
			return "the list of " + strings.ToLower(name) + " in the URL"
		}
		return fmt.Sprintf("parameter %q", fields[i].Path)
	}
}

// Check returns all that is wrong with the struct that config points to as one error: by the
// tags of its fields, and by what more finds, which may be nil. Errors begin with the name of the package pkg.
func Check(pkg string, config any, named Named, more func(Wrong)) error {
	var errs []error
	shown := func(_ field.Field, v reflect.Value) string {
		if v.Kind() == reflect.String {
			return strconv.Quote(v.String())
		}
		return fmt.Sprint(v.Interface())
	}
	for _, problem := range field.Check(config, field.Names{Go: true, Show: shown}) {
		errs = append(errs, fmt.Errorf("%s: %s %s", pkg, named(problem.Field), problem.Text))
	}
	if more != nil {
		more(func(field string, value any, fix string) {
			errs = append(errs, fmt.Errorf("%s: %s is %v: %s", pkg, named(field), value, fix))
		})
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
