package official

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Scheme is the URL scheme of this adapter.
const Scheme = "kafka+watermill"

func init() {
	brokers.DefaultMux().Handle(Scheme, Open)
	brokers.DefaultMux().HandleCheck(Scheme, func(u *url.URL) error {
		_, err := ParseURL(u)
		return err
	})
	brokers.DefaultMux().HandleExposure(Scheme, func(u *url.URL) error {
		c, err := ParseURL(u)
		if err != nil {
			return err
		}
		access := c.access()
		return access.Exposure()
	})
}

// Open connects to the cluster that a URL names; the package documentation lists the
// parameters. All mistakes in the URL are returned as one error, which repeats no user
// info and no value that may be a secret. It is a brokers.Opener, for programs with a
// mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, config)
}

// ParseURL returns the configuration that a URL stands for, so that a program can add
// to it what a URL cannot say before it calls [New]. Its errors are those of [Open]
// before it connects.
func ParseURL(u *url.URL) (Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return Config{}, fmt.Errorf("%s: %w", pkg, err)
	}
	var (
		c         Config
		transport urlquery.TLS
		errs      []error
		tlsErrs   []error
	)
	c.Brokers, errs = cluster.ReadURL(pkg, u)
	setters := c.setters()
	transport.AddTo(setters)
	u, foreign := withoutForeign(u)
	errs = append(errs, foreign...)
	errs = append(errs, urlquery.Read(pkg, u, setters)...)
	c.TLS, tlsErrs = transport.Config(pkg)
	errs = append(errs, tlsErrs...)
	if len(errs) == 0 {
		errs = append(errs, c.validate())
	}
	return c, errors.Join(errs...)
}

// withoutForeign takes the parameters out that only kafka:// has, and says so of each.
func withoutForeign(u *url.URL) (rest *url.URL, errs []error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return u, nil // which the others find out as well
	}
	for _, name := range []string{
		"in_flight_per_partition", "order", "protocol", "commit_distance", "partitioner", "publish_timeout",
	} {
		if query.Has(name) {
			errs = append(errs, fmt.Errorf("%s: parameter %q is for kafka://, watermill-kafka has no such choice: remove it, or use that scheme", pkg, name))
			query.Del(name)
		}
	}
	return &url.URL{RawQuery: query.Encode()}, errs
}

// setters maps the URL's parameters to fields.
func (c *Config) setters() map[string]urlquery.Setter {
	return map[string]urlquery.Setter{
		"sasl":            urlquery.OneOf(&c.SASL, SASLPlain, SASLScramSHA256, SASLScramSHA512),
		"client_id":       urlquery.Text(&c.ClientID),
		"connect_timeout": urlquery.Duration(&c.ConnectTimeout),

		"offset":           urlquery.Choice(&c.Consume.StartAtNewest, "oldest", "newest"),
		"session_timeout":  urlquery.Duration(&c.Consume.SessionTimeout),
		"rebalance_drain":  urlquery.Duration(&c.Consume.RebalanceDrain),
		"commit_interval":  urlquery.Duration(&c.Consume.CommitInterval),
		"redelivery_delay": urlquery.Duration(&c.Consume.RedeliveryDelay),
		"wait_for_topic":   urlquery.Duration(&c.Consume.WaitForTopic),
		"time":             urlquery.Choice(&c.Consume.ProducerTime, "broker", "producer"),

		"key_metadata":      urlquery.Text(&c.Publish.KeyMetadata),
		"max_message_bytes": urlquery.Positive(&c.Publish.MaxBytes),
		"create_topics":     urlquery.Bool(&c.Publish.CreateTopics),
		"partitions":        urlquery.Positive(&c.Publish.Partitions),
		"replication":       urlquery.Positive(&c.Publish.Replication),
	}
}
