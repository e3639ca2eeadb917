package official

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/urlmux"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "sqs+watermill"

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
func ParseURL(u *url.URL) (sqs.Config, error) {
	config, err := sqs.ParseURL(u)
	if err = errors.Join(err, refused(func(f foreign) (string, bool) {
		return fmt.Sprintf("parameter %q", f.parameter), u.Query().Has(f.parameter)
	})); err != nil {
		return sqs.Config{}, err
	}
	return config, nil
}

// foreign is a setting that watermill-aws does not have.
type foreign struct {
	field, parameter string
	set              func(*sqs.Config) bool
	instead          string
}

var foreigners = []foreign{
	{
		"Consume.Pollers", "pollers", func(c *sqs.Config) bool { return c.Consume.Pollers > 0 },
		"watermill-aws has a poller for each delivery in flight, so raise in_flight (SubscriberConfig.InFlight) for more",
	},
	{
		"Consume.Linger", "linger", func(c *sqs.Config) bool { return c.Consume.Linger > 0 },
		"watermill-aws receives and deletes messages one by one; visibility, wait and redelivery_delay can be chosen",
	},
}

// validate refuses settings that watermill-aws does not have.
func validate(c *sqs.Config) error {
	return refused(func(f foreign) (string, bool) { return "Config." + f.field, f.set(c) })
}

// refused reports each foreign setting, by its name, with the alternative.
func refused(made func(foreign) (name string, made bool)) error {
	var errs []error
	for _, f := range foreigners {
		if name, made := made(f); made {
			errs = append(errs, fmt.Errorf("sqs/official: %s is for sqs://: remove it, or use that scheme: %s", name, f.instead))
		}
	}
	return errors.Join(errs...)
}
