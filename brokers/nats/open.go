package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/exposed"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "nats"

// The environment variables with the credentials of [New], if Config.Credentials names no
// file.
const (
	UsernameVariable = "MILLPOND_NATS_USERNAME"
	PasswordVariable = "MILLPOND_NATS_PASSWORD" // #nosec G101 -- the name of a variable
)

func init() {
	brokers.DefaultMux().Handle(Scheme, Open)
	brokers.DefaultMux().HandleCheck(Scheme, urlmux.Parsed(ParseURL))
	brokers.DefaultMux().HandleExposure(Scheme, exposure)
}

// exposure returns an error if the password from the environment could travel unprotected. A
// credentials file has none: the client signs what the server sends.
func exposure(u *url.URL) error {
	c, err := ParseURL(u)
	if err != nil || c.Credentials != "" || os.Getenv(PasswordVariable) == "" {
		return err
	}
	return exposed.ByAddress(pkg, c.Servers, c.TLS, "write tls=true, or name a file of credentials")
}

// Open connects to the servers that a URL names. The package documentation lists the parameters.
// One error lists everything that is wrong with the URL, without user info and without values that
// may be secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// ParseURL returns a URL's configuration, so that a program can change it before it calls [New].
// Its errors are those of [Open] before it connects.
func ParseURL(u *url.URL) (Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return Config{}, fmt.Errorf("%s: %w", pkg, err)
	}
	var c Config
	servers, errs := urlquery.Hosts(pkg, u, UsernameVariable+" and "+PasswordVariable+", or the parameter credentials")
	c.Servers = servers
	secured, problems := urlquery.ReadTLS(pkg, u, urlquery.Fields(&c))
	c.TLS, errs = secured, append(errs, problems...)
	if len(errs) == 0 {
		errs = append(errs, c.validate(urlquery.InURL(&c)))
	}
	return c, errors.Join(errs...)
}
