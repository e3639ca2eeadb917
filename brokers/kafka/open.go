package kafka

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "kafka"

func init() {
	cluster.Register(Scheme, Open, func(u *url.URL) (cluster.Access, error) {
		c, err := ParseURL(u)
		return *c.access(), err
	})
}

// Open connects to the cluster that a URL names. The package documentation lists the parameters.
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
	addresses, errs := cluster.ReadURL(pkg, u)
	secured, problems := urlquery.ReadTLS(pkg, u, urlquery.Fields(&c))
	c.Brokers, c.TLS, errs = addresses, secured, append(errs, problems...)
	if len(errs) == 0 {
		errs = append(errs, c.validate(urlquery.InURL(&c)))
	}
	return c, errors.Join(errs...)
}
