package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "sqs"

func init() {
	brokers.DefaultMux().Handle(Scheme, Open)
	brokers.DefaultMux().HandleCheck(Scheme, CheckURL)
}

// Open opens the broker that a URL names. The package documentation lists the parameters. One error
// lists everything that is wrong with the URL, without user info and without values that may be
// secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// CheckURL returns the errors of [Open] that need no request. It is a brokers.Checker.
func CheckURL(u *url.URL) error { return urlmux.Parsed(ParseURL)(u) }

// ParseURL returns a URL's configuration, so that a program can change it before it calls [New].
// Its errors are those of [CheckURL].
func ParseURL(u *url.URL) (Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return Config{}, fmt.Errorf("sqs: %w", err)
	}
	var (
		c    Config
		errs []error
	)
	if u.User != nil {
		errs = append(errs, errors.New("sqs: the URL names a user: remove it, credentials come from the SDK's provider chain, such as AWS_ACCESS_KEY_ID, AWS_PROFILE or the role of the machine"))
	}
	if u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		errs = append(errs, errors.New("sqs: the URL names a path or fragment: write sqs://queue?region=eu-central-1, or sqs://?region=eu-central-1"))
	}
	if u.Host != "" {
		c.Queues = strings.Split(u.Host, ",")
	}
	errs = append(errs, urlquery.Read(pkg, u, urlquery.Fields(&c))...)
	return c, errors.Join(append(errs, c.validate(urlquery.InURL(&c)))...)
}

// noteOf describes region and endpoint for errors.
func (c *Config) noteOf(region string) string {
	if c.Endpoint != "" {
		return fmt.Sprintf("region %q, endpoint %s", region, c.Endpoint)
	}
	return fmt.Sprintf("region %q", region)
}
