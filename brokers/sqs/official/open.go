package official

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "sqs+watermill"

func init() {
	brokers.DefaultMux().Handle(Scheme, Open)
	brokers.DefaultMux().HandleCheck(Scheme, CheckURL)
}

// Open opens the broker that a URL names; the package documentation lists the parameters.
// All mistakes in the URL are returned as one error, which repeats no user info and no
// value that may be a secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	b, err := New(ctx, config)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// CheckURL returns the errors of [Open] that can be known without asking anybody. It is a
// brokers.Checker.
func CheckURL(u *url.URL) error {
	_, err := ParseURL(u)
	return err
}

// ParseURL returns the configuration that a URL stands for, so that a program can add to
// it what a URL cannot say before it calls [New]. Its errors are those of [CheckURL].
func ParseURL(u *url.URL) (sqs.Config, error) {
	config, err := sqs.ParseURL(u)
	if err == nil {
		err = validate(&config)
	}
	if err != nil {
		return sqs.Config{}, err
	}
	return config, nil
}

// validate refuses what watermill-aws has no such choice for.
func validate(c *sqs.Config) error {
	var errs []error
	foreign := func(set bool, field, parameter, why string) {
		if set {
			errs = append(errs, fmt.Errorf("sqs/official: Config.%s (parameter %s) is for sqs://: remove it, or use that scheme: %s", field, parameter, why))
		}
	}
	foreign(c.Consume.Pollers > 0, "Consume.Pollers", "pollers", "watermill-aws has one for each delivery in flight")
	foreign(c.Consume.Linger > 0, "Consume.Linger", "linger", "watermill-aws receives and deletes messages one by one")
	return errors.Join(errs...)
}
