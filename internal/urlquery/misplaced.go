package urlquery

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// Misplaced reports parameters of other adapters, for adapters that pass unknown parameters
// on to a server, which would refuse them late or ignore them. here has the replacement for
// each, "" if there is none.
func Misplaced(query url.Values, here map[string]string) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		instead, known := here[name]
		switch {
		case !known:
		case instead == "":
			problems = append(problems, fmt.Sprintf("parameter %q is for other URLs: remove it", name))
		default:
			problems = append(problems, fmt.Sprintf("parameter %q is for other URLs: did you mean %s?", name, instead))
		}
	}
	return problems
}
