package sqlstore

import "strings"

// Relative is a server that speaks the protocol of another, but lacks what a store rests
// on. What it lacks it often accepts without doing it, so it is known by name.
type Relative struct {
	Mark  string // in what it says of itself, in small letters
	Name  string
	Lacks string
}

// FindRelative returns the one of them that a server is by what it says of itself.
func FindRelative(all []Relative, said string) (Relative, bool) {
	said = strings.ToLower(said)
	for _, r := range all {
		if strings.Contains(said, r.Mark) {
			return r, true
		}
	}
	return Relative{}, false
}
