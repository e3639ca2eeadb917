package urlmux

import (
	"net/url"
	"regexp"
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

var (
	userInfo       = regexp.MustCompile(`://[^\s"]*@`)
	secretArgument = regexp.MustCompile(`(?i)\b([\w-]*(?:pass|pwd|secret|token|credential)[\w-]*=)[^\s&"]*`)
)

// WithoutSecrets removes from a text the secrets, the password of a URL, and what looks like a
// secret of any URL. instead stands where the whole URL stood.
func WithoutSecrets(text, rawURL, instead string, secrets ...string) string {
	if rawURL != "" && !strings.HasSuffix(rawURL, "://") { // a scheme alone is no secret, and begins every example
		text = strings.ReplaceAll(text, rawURL, instead)
	}
	if u, err := url.Parse(rawURL); err == nil {
		password, _ := u.User.Password()
		secrets = append(secrets, password, url.QueryEscape(password))
	}
	for _, secret := range secrets {
		if len(secret) > 3 { // a shorter one would be all over the text
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	text = userInfo.ReplaceAllString(text, "://…@")
	return secretArgument.ReplaceAllString(text, "$1…")
}
