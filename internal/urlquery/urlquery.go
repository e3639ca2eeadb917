// Package urlquery reads the parameters of an adapter's URL strictly: it reports all
// mistakes at once, each with its fix.
package urlquery

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/urlmux"
)

// A Setter reads the value of one parameter into a field, and returns the fix if the value
// is wrong.
type Setter func(value string) (fix string)

// Read passes each parameter of u to its setter. Errors begin with the package name pkg.
// They repeat the values of known parameters, so none of these may be a secret.
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
