package urlquery

import (
	"errors"
	"net/url"
	"strings"
)

// ErrStray is what is wrong with a URL that ends its host too early.
var ErrStray = errors.New("the URL has a # or, behind its host, an @: percent-encode special characters in a password, # as %23, / as %2F, ? as %3F and @ as %40")

// Stray returns [ErrStray] if a URL may have a password with a '#', '/' or '?' that was not
// percent-encoded: what stands before that was taken for the host, and what stands behind it
// for something else. Nothing of such a URL may be shown, and no host of it be asked for.
func Stray(u *url.URL) error {
	if u.Fragment != "" || u.Host != "" && (strings.Contains(u.EscapedPath(), "@") || strings.Contains(u.RawQuery, "@")) {
		return ErrStray
	}
	return nil
}
