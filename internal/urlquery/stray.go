package urlquery

import (
	"errors"
	"net/url"
	"strings"
)

// ErrStray: the host of a URL ends too early.
var ErrStray = errors.New("the URL has a # or, behind its host, an @: percent-encode special characters in a password, # as %23, / as %2F, ? as %3F and @ as %40")

// Stray returns [ErrStray] if a URL may have a password with a '#', '/' or '?' that was not
// percent-encoded, so that a part of it was parsed as the host. No part of such a URL may
// be shown, and its host must not be looked up.
func Stray(u *url.URL) error {
	if u.Fragment != "" || u.Host != "" && (strings.Contains(u.EscapedPath(), "@") || strings.Contains(u.RawQuery, "@")) {
		return ErrStray
	}
	return nil
}
