package urlmux

import (
	"strconv"
	"strings"
)

// ShownName returns the name of an unknown parameter for an error: quoted, or hidden if it
// may be part of a secret that was not percent-encoded.
func ShownName(name string) string {
	const longest = 32
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || len(name) > longest {
		return "(a name that is not shown)"
	}
	return strconv.Quote(name)
}
