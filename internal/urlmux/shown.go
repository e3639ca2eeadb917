package urlmux

import (
	"strconv"
	"strings"
)

// ShownName is how the name of an unknown parameter is shown: quoted, or not at all if it
// may be part of a secret that was not percent-encoded.
func ShownName(name string) string {
	const longest = 32
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || len(name) > longest {
		return "(a name that is not shown)"
	}
	return strconv.Quote(name)
}
