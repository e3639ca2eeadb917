package kafka

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
const Scheme = "kafka"

func init() {
	cluster.Register(Scheme, Open, func(u *url.URL) (cluster.Access, error) {
		c, err := ParseURL(u)
		return *c.access(), err
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
	var c Config
	addresses, errs := cluster.ReadURL(pkg, u)
	secured, problems := urlquery.ReadTLS(pkg, u, c.setters())
	c.Brokers, c.TLS, errs = addresses, secured, append(errs, problems...)
	if len(errs) == 0 {
		errs = append(errs, c.validate())
	}
	return c, errors.Join(errs...)
}

// setters maps the URL's parameters to fields.
func (c *Config) setters() map[string]urlquery.Setter {
	return map[string]urlquery.Setter{
		"sasl":            urlquery.OneOf(&c.SASL, SASLPlain, SASLScramSHA256, SASLScramSHA512),
		"client_id":       urlquery.Text(&c.ClientID),
		"connect_timeout": urlquery.Duration(&c.ConnectTimeout),

		"in_flight_per_partition": urlquery.Positive(&c.Consume.InFlightPerPartition),
		"order":                   urlquery.OneOf(&c.Consume.Order, OrderPartition, OrderKey, OrderNone),
		"offset":                  urlquery.Choice(&c.Consume.StartAtNewest, "oldest", "newest"),
		"protocol":                urlquery.OneOf(&c.Consume.Protocol, ProtocolClassic, ProtocolConsumer),
		"session_timeout":         urlquery.Duration(&c.Consume.SessionTimeout),
		"rebalance_drain":         urlquery.Duration(&c.Consume.RebalanceDrain),
		"commit_interval":         urlquery.Duration(&c.Consume.CommitInterval),
		"commit_distance":         urlquery.Positive(&c.Consume.CommitDistance),
		"redelivery_delay":        urlquery.Duration(&c.Consume.RedeliveryDelay),
		"wait_for_topic":          urlquery.Duration(&c.Consume.WaitForTopic),
		"time":                    urlquery.Choice(&c.Consume.ProducerTime, "broker", "producer"),

		"key_metadata":      urlquery.Text(&c.Publish.KeyMetadata),
		"partitioner":       urlquery.OneOf(&c.Publish.Partitioner, PartitionerMurmur2, PartitionerSarama),
		"max_message_bytes": urlquery.Positive(&c.Publish.MaxBytes),
		"publish_timeout":   urlquery.Duration(&c.Publish.Timeout),
		"create_topics":     urlquery.Bool(&c.Publish.CreateTopics),
		"partitions":        urlquery.Positive(&c.Publish.Partitions),
		"replication":       urlquery.Positive(&c.Publish.Replication),
	}
}
