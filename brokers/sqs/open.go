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

// Open opens the broker that a URL names; the package documentation lists the parameters.
// All mistakes in the URL are returned as one error, which repeats no user info and no
// value that may be a secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, config)
}

// CheckURL returns the errors of [Open] that can be known without asking anybody. It is a
// brokers.Checker.
func CheckURL(u *url.URL) error { return urlmux.Parsed(ParseURL)(u) }

// ParseURL returns the configuration that a URL stands for, so that a program can add to
// it what a URL cannot say before it calls [New]. Its errors are those of [CheckURL].
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
	errs = append(errs, urlquery.Read("sqs", u, map[string]urlquery.Setter{
		"region":          urlquery.Text(&c.Region),
		"endpoint":        urlquery.Text(&c.Endpoint),
		"connect_timeout": urlquery.Duration(&c.ConnectTimeout),

		"queue":            urlquery.Text(&c.Queue),
		"sns":              urlquery.Text(&c.SNS),
		"delivery_limit":   urlquery.Positive(&c.DeliveryLimit),
		"create_queues":    urlquery.Bool(&c.CreateQueues),
		"visibility":       urlquery.Duration(&c.Consume.Visibility),
		"wait":             urlquery.Duration(&c.Consume.Wait),
		"pollers":          urlquery.Positive(&c.Consume.Pollers),
		"linger":           urlquery.Duration(&c.Consume.Linger),
		"redelivery_delay": urlquery.Duration(&c.Consume.RedeliveryDelay),

		"group_metadata":         urlquery.Text(&c.Publish.GroupMetadata),
		"deduplication_metadata": urlquery.Text(&c.Publish.DeduplicationMetadata),
		"publish_timeout":        urlquery.Duration(&c.Publish.Timeout),
	})...)
	if len(errs) == 0 {
		errs = append(errs, c.problems(inURL))
	}
	return c, errors.Join(errs...)
}

// inURL is what a field of Config is called in a URL.
func inURL(field string) string {
	if field == "Queues" {
		return "the list of queues in the URL"
	}
	name, ok := parameters[field]
	if !ok {
		return "Config." + field
	}
	return fmt.Sprintf("parameter %q", name)
}

// parameters are those whose values are checked together with what a program sets.
var parameters = map[string]string{
	"Endpoint": "endpoint", "ConnectTimeout": "connect_timeout",
	"Queue": "queue", "SNS": "sns", "DeliveryLimit": "delivery_limit",
	"Consume.Visibility": "visibility", "Consume.Wait": "wait", "Consume.Pollers": "pollers",
	"Consume.Linger": "linger", "Consume.RedeliveryDelay": "redelivery_delay",
	"Publish.Timeout": "publish_timeout",
}

// noteOf shows the region and the endpoint in errors.
func (c *Config) noteOf(region string) string {
	if c.Endpoint != "" {
		return fmt.Sprintf("region %q, endpoint %s", region, c.Endpoint)
	}
	return fmt.Sprintf("region %q", region)
}
