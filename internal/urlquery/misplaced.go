package urlquery

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// Misplaced says what is wrong with the parameters of a URL that other adapters
// understand, for adapters that hand on what they do not know themselves: a server would
// refuse them late, or ignore them. here has for each the one to write instead, or "" if
// there is none.
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
