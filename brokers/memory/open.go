package memory

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "memory"

func init() {
	brokers.DefaultMux().Handle(Scheme, Open)
	brokers.DefaultMux().HandleCheck(Scheme, urlmux.Parsed(parseURL))
}

// Open makes a new broker from a URL; the package documentation lists the
// parameters. All mistakes in the URL are returned as one error. It is a
// brokers.Opener, for programs with a mux of their own.
func Open(_ context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return New(config)
}

// parameters are what the URL may set.
func parameters(c *Config) map[string]urlquery.Setter {
	return map[string]urlquery.Setter{
		"capacity":  urlquery.Positive(&c.Capacity),
		"when_full": urlquery.Choice(&c.FailWhenFull, "wait", "fail"),
		"delivery_limit": func(value string) string {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return "use a positive number such as 5, or 0 for no limit"
			}
			c.DeliveryLimit = n
			return ""
		},
		"redelivery_delay": func(value string) string {
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return "use a duration such as 50ms, or 0s for none"
			}
			if d == 0 {
				d = -1 // Config's zero value is the default, not "none"
			}
			c.RedeliveryDelay = d
			return ""
		},
		"key_metadata": urlquery.Text(&c.KeyMetadata),
	}
}

func parseURL(u *url.URL) (Config, error) {
	var config Config
	var errs []error
	if u.User != nil || u.Host != "" || u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		// What stands there may be a password, so it is not repeated.
		errs = append(errs, errors.New("memory: the URL names a user, host, path or fragment: write memory://?parameter=value, the broker has no address"))
	}
	errs = append(errs, urlquery.Read("memory", u, parameters(&config))...)
	return config, errors.Join(errs...)
}
