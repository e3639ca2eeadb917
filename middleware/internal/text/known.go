package text

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Known returns what an error says in millpond's own words, those of its sentinels. It leaves out
// what a server or a handler says, which may contain values of messages.
func Known(err error) string {
	var known []string
	var look func(error)
	look = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it looks at each of them
		case interface{ Unwrap() error }:
			look(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				look(err)
			}
		default:
			if reflect.TypeOf(err) == sentinel && ours.MatchString(err.Error()) && !slices.Contains(known, err.Error()) {
				known = append(known, err.Error())
			}
		}
	}
	look(err)
	return strings.Join(known, "; ")
}

var (
	sentinel = reflect.TypeOf(stores.ErrUnavailable)
	ours     = regexp.MustCompile(`^(stores|middleware): `)
)
