package memory

import (
	"cmp"
	"context"
	"errors"
	"net/url"
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

// Open creates a new broker from a URL. The package documentation lists the parameters. One error
// lists everything that is wrong with the URL. It is a brokers.Opener, for programs with a mux of
// their own.
func Open(_ context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return New(config)
}

func parseURL(u *url.URL) (Config, error) {
	var config Config
	var errs []error
	if u.User != nil || u.Host != "" || u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		// The error does not quote the URL, because it may contain a password.
		errs = append(errs, errors.New("memory: the URL names a user, host, path or fragment: write memory://?parameter=value, the broker has no address"))
	}
	setters := urlquery.Fields(&config)
	setters["redelivery_delay"] = func(value string) string {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return "use a duration such as 50ms, or 0s for none"
		}
		config.RedeliveryDelay = cmp.Or(d, -1) // zero is the default, not "none"
		return ""
	}
	errs = append(errs, urlquery.Read(pkg, u, setters)...)
	return config, errors.Join(errs...)
}
