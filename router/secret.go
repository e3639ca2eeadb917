package router

import (
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// URL is the URL of a broker or store. Printed, logged or marshaled, it has no user info
// and no parameters that may be secrets; [URL.Reveal] returns all of it. [NewURL] makes
// one; the zero value is none.
//
// The text is behind a pointer, because fmt calls no methods of unexported fields, and
// prints their values unless they are pointers.
type URL struct{ text *string }

// NewURL returns a text as a URL.
func NewURL(text string) URL { return URL{concealed(text)} }

// Reveal returns the URL with its secrets.
func (u URL) Reveal() string { return revealed(u.text) }

// String returns the URL without its secrets.
func (u URL) String() string { return redactURL(u.Reveal()) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *URL) UnmarshalText(text []byte) error {
	*u = NewURL(string(text))
	return nil
}

func concealed(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func revealed(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// Format implements fmt.Formatter, for all verbs.
func (u URL) Format(f fmt.State, verb rune) { format(f, verb, u.String()) }

// MarshalText implements encoding.TextMarshaler.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Secret is a text that is never printed, logged or marshaled; [Secret.Reveal] returns it.
// [NewSecret] makes one; the zero value is none.
type Secret struct{ text *string }

// NewSecret returns a text as a secret.
func NewSecret(text string) Secret { return Secret{concealed(text)} }

// Reveal returns the text.
func (s Secret) Reveal() string { return revealed(s.text) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

const hidden = "(secret)"

// String returns no part of the secret.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return hidden
}

// Format implements fmt.Formatter, for all verbs.
func (s Secret) Format(f fmt.State, verb rune) { format(f, verb, s.String()) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func format(f fmt.State, verb rune, text string) {
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = fmt.Sprintf("%q", text)
	}
	_, _ = io.WriteString(f, text) // fmt's own buffer
}

var secretParameter = regexp.MustCompile(`(?i)pass|pwd|secret|token|credential|auth|signature|^sig$|^user|key$`)

var parameterName = regexp.MustCompile(`^[A-Za-z][\w.-]{0,50}$`)

// redactURL returns a URL without possible secrets: without its user info and the values of
// parameters, except those that are known to be harmless. It returns the scheme alone if
// the URL may have a password that was not percent-encoded.
func redactURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Scheme == "" && strings.ContainsAny(raw, "@:") {
		scheme, _, _ := strings.Cut(raw, ":")
		if !schemeName.MatchString(scheme) || err == nil {
			return "(a URL that cannot be read)"
		}
		return scheme + "://…"
	}
	// A password that was not percent-encoded, user info after a slash too many, or without
	// its '@'.
	if urlquery.Stray(u) != nil || strings.Contains(u.Path, "@") || u.Host != "" && !hosts.MatchString(u.Host) {
		return u.Scheme + "://…"
	}
	user := ""
	if u.User != nil {
		user = "…@"
	}
	query, err := redactQuery(u.RawQuery)
	if err != nil || strings.Contains(query, "@") {
		query = "…"
	}
	text := u.Scheme + "://" + user + u.Host + u.EscapedPath()
	if u.Scheme == "" {
		text = user + u.Host + u.EscapedPath()
	}
	if query != "" {
		text += "?" + query
	}
	return scrub(text)
}

var hosts = regexp.MustCompile(`^([\w.~ -]+|\[[0-9A-Fa-f:.%\w]+\])(:\d*)?(,([\w.~ -]+|\[[0-9A-Fa-f:.%\w]+\])(:\d*)?)*$`)

var schemeName = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,20}$`)

// redactQuery keeps the order and the spelling of the parameters.
func redactQuery(raw string) (string, error) {
	if _, err := url.ParseQuery(raw); err != nil || raw == "" {
		return "", err
	}
	parts := strings.Split(raw, "&")
	for i, part := range parts {
		name, value, set := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			return "", err
		}
		switch {
		case !set || !parameterName.MatchString(plain):
			parts[i] = "…"
		case !isShown(plain, value):
			parts[i] = name + "=…"
		}
	}
	return strings.Join(parts, "&"), nil
}

// scrub removes from a text what looks like a secret of a URL.
func scrub(text string) string { return urlmux.WithoutSecrets(text, "", "") }

// withoutSecrets removes the secrets of the URL from the text of an adapter's error.
func withoutSecrets(err error, u URL) error {
	if err == nil {
		return nil
	}
	var secrets []string
	if parsed, parseErr := url.Parse(u.Reveal()); parseErr == nil {
		for name, values := range parsed.Query() {
			if secretParameter.MatchString(name) {
				secrets = append(secrets, values...)
			}
		}
	}
	return &scrubbedError{err: err, text: urlmux.WithoutSecrets(err.Error(), u.Reveal(), u.String(), secrets...)}
}

// scrubbedError wraps an error and has a shorter text.
type scrubbedError struct {
	err  error
	text string
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }
