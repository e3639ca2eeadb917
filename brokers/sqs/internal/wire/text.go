package wire

import (
	"strings"
	"unicode/utf8"
)

// isText reports whether SQS accepts s as a body or as an attribute's value.
func isText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
		case r < ' ' || r == 0xFFFE || r == 0xFFFF:
			return false
		}
	}
	return true
}

// longestName is how long an attribute's name may be.
const longestName = 256

const nameCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

// validName reports whether SQS accepts name for an attribute.
func validName(name string) bool {
	if name == "" || len(name) > longestName || strings.Trim(name, nameCharacters) != "" {
		return false
	}
	if name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}
