// Package urlquery reads the parameters of an adapter's URL, strictly: every mistake is
// reported, at once, with what to write instead.
package urlquery

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// A Setter reads the value of one parameter into a field, and returns what to write
// instead if it cannot.
type Setter func(value string) (fix string)

// Read hands each parameter of u to its setter. Errors begin with the name of the package
// pkg; they repeat the values of known parameters, so none of these may be a secret.
func Read(pkg string, u *url.URL, setters map[string]Setter) (errs []error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		errs = append(errs, fmt.Errorf("%s: the URL's query cannot be parsed: write parameter=value pairs joined by &, percent-encoded", pkg))
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := setters[name]
		switch values := query[name]; {
		case !known: // its value may be a secret
			errs = append(errs, fmt.Errorf("%s: parameter %s is not known: remove it or use one of %s",
				pkg, urlmux.ShownName(name), strings.Join(slices.Sorted(maps.Keys(setters)), ", ")))
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("%s: parameter %q is given %d times, as %q: give it once", pkg, name, len(values), values))
		default:
			if fix := set(values[0]); fix != "" {
				errs = append(errs, fmt.Errorf("%s: parameter %q is %q: %s", pkg, name, values[0], fix))
			}
		}
	}
	return errs
}

// Text takes any value.
func Text(field *string) Setter {
	return func(value string) string {
		*field = value
		return ""
	}
}

// Bool takes true and false.
func Bool(field *bool) Setter { return Choice(field, "false", "true") }

// Choice takes one of two words.
func Choice(field *bool, whenFalse, whenTrue string) Setter {
	return func(value string) string {
		if value != whenFalse && value != whenTrue {
			return "use " + whenFalse + " or " + whenTrue
		}
		*field = value == whenTrue
		return ""
	}
}

// OneOf takes one of the known words.
func OneOf[T ~string](field *T, known ...T) Setter {
	return func(value string) string {
		if slices.Contains(known, T(value)) {
			*field = T(value)
			return ""
		}
		names := make([]string, 0, len(known))
		for _, name := range known {
			names = append(names, string(name))
		}
		return "use " + strings.Join(names, " or ")
	}
}

// Positive takes a number from 1 on that fits into 31 bits.
func Positive(field *int) Setter {
	return func(value string) string {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 1 {
			return "use a positive number such as 32"
		}
		*field = int(n)
		return ""
	}
}

// Duration takes a positive duration, such as 10s.
func Duration(field *time.Duration) Setter {
	return func(value string) string {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return "use a duration such as 500ms or 10s"
		}
		*field = d
		return ""
	}
}
