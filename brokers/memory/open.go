package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlmux"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "memory"

func init() { brokers.DefaultMux().Handle(Scheme, Open) }

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

// parameters maps the URL's parameters to fields. A setter returns what is to be
// written instead.
var parameters = map[string]func(c *Config, value string) (fix string){
	"capacity": func(c *Config, value string) string {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return "use a positive number such as 10000"
		}
		c.Capacity = n
		return ""
	},
	"when_full": func(c *Config, value string) string {
		if value != "wait" && value != "fail" {
			return "use wait or fail"
		}
		c.FailWhenFull = value == "fail"
		return ""
	},
	"delivery_limit": func(c *Config, value string) string {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return "use a positive number such as 5, or 0 for no limit"
		}
		c.DeliveryLimit = n
		return ""
	},
	"redelivery_delay": func(c *Config, value string) string {
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
	"key_metadata": func(c *Config, value string) string {
		c.KeyMetadata = value
		return ""
	},
}

func parseURL(u *url.URL) (Config, error) {
	var config Config
	var errs []error
	if u.User != nil || u.Host != "" || u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		// What stands there may be a password, so it is not repeated.
		errs = append(errs, errors.New("memory: the URL names a user, host, path or fragment: write memory://?parameter=value, the broker has no address"))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		errs = append(errs, errors.New("memory: the URL's query cannot be parsed: write parameter=value pairs joined by &, percent-encoded"))
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := parameters[name]
		if !known {
			// The value of an unknown parameter may be a secret.
			errs = append(errs, fmt.Errorf("memory: parameter %s is not known: remove it or use one of %s",
				urlmux.ShownName(name), strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")))
			continue
		}
		if values := query[name]; len(values) > 1 {
			errs = append(errs, fmt.Errorf("memory: parameter %q is given %d times, as %q: give it once", name, len(values), values))
			continue
		}
		if fix := set(&config, query.Get(name)); fix != "" {
			errs = append(errs, fmt.Errorf("memory: parameter %q is %q: %s", name, query.Get(name), fix))
		}
	}
	return config, errors.Join(errs...)
}
