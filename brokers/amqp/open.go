package amqp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/exposed"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// The URL schemes of this adapter.
const (
	Scheme    = "amqp"
	SchemeTLS = "amqps"
)

func init() {
	for _, scheme := range []string{Scheme, SchemeTLS} {
		brokers.DefaultMux().Handle(scheme, Open)
		brokers.DefaultMux().HandleCheck(scheme, Check)
		brokers.DefaultMux().HandleExposure(scheme, Exposure)
	}
}

// Open connects to the broker that a URL names; the package documentation lists the
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

// Check returns the error that [Open] returns before it connects. It is a
// brokers.Checker.
func Check(u *url.URL) error { return urlmux.Parsed(ParseURL)(u) }

// Exposure says where a password can travel without verified TLS: that of the URL, or of the
// environment; everybody knows that of guest. RabbitMQ is sent the password itself. It is a
// brokers.Checker.
func Exposure(u *url.URL) error {
	c, err := ParseURL(u)
	if err != nil {
		return err
	}
	if auth, ok := c.authenticate().(*amqp091.PlainAuth); ok && auth.Username == guest && auth.Password == guest {
		return nil
	}
	return exposed.ByAddress(pkg, c.Addresses, c.TLS, "write amqps://, and the port that the server has for TLS")
}

// ParseURL returns the configuration that a URL stands for, so that a program can add
// to it what a URL cannot say before it calls [New]. Its errors are those of [Open]
// before it connects.
func ParseURL(u *url.URL) (Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return Config{}, fmt.Errorf("amqp: %w", err)
	}
	var c Config
	var errs []error
	if u.User != nil {
		password, ok := u.User.Password()
		if c.Username, c.Password = u.User.Username(), password; !ok || c.Username == "" {
			errs = append(errs, fmt.Errorf("amqp: the URL names a user without a password, or a password without a user: write user:password@host, or set %s and %s", UsernameVariable, PasswordVariable))
		}
	}
	if u.Host == "" {
		errs = append(errs, errors.New("amqp: the URL names no broker: write amqp://host:port/virtual-host"))
	} else if c.Addresses = strings.Split(u.Host, ","); slices.ContainsFunc(c.Addresses, misaddressed) {
		// Which one is not said: it may be a part of a password.
		errs = append(errs, errors.New("amqp: the URL names what is no address: check host:port, with commas between several, and percent-encode special characters in a password"))
	}
	if u.Opaque != "" {
		errs = append(errs, errors.New("amqp: the URL has no // behind its scheme: write amqp://host:port/virtual-host"))
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	vhost, err := url.PathUnescape(path)
	if err != nil || strings.Contains(path, "/") {
		errs = append(errs, errors.New("amqp: the path of the URL is more than a virtual host: write / in its name as %2F; topics are given to Subscribe and Publish"))
	}
	c.VirtualHost = vhost

	secured := urlquery.TLS{On: u.Scheme == SchemeTLS}
	setters := c.setters()
	secured.AddTo(setters)
	delete(setters, "tls") // that is what the scheme says
	errs = append(errs, urlquery.Read("amqp", u, setters)...)
	if !secured.On && secured != (urlquery.TLS{}) {
		errs = append(errs, errors.New("amqp: the URL has parameters for TLS, which is off: write amqps://"))
	} else {
		config, problems := secured.Config("amqp")
		c.TLS, errs = config, append(errs, problems...)
	}
	if len(errs) == 0 {
		errs = append(errs, c.problems(func(field string) string {
			if field == "Topology.Exchange" {
				return `parameter "exchange"`
			}
			return "Config." + field // parameters of these are checked where they are read
		}))
	}
	return c, errors.Join(errs...)
}

// misaddressed reports whether an address of a URL is neither host nor host:port.
func misaddressed(address string) bool {
	one := url.URL{Host: address}
	host, port := one.Hostname(), one.Port()
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return true
		}
	}
	return host == "" || strings.HasSuffix(address, ":") || strings.Contains(host, ":") && !strings.HasPrefix(address, "[")
}

func (c *Config) setters() map[string]urlquery.Setter {
	return map[string]urlquery.Setter{
		"connect_timeout": urlquery.Duration(&c.ConnectTimeout),
		"heartbeat":       urlquery.Duration(&c.Heartbeat),
		"connection_name": urlquery.Text(&c.ConnectionName),

		"preset":         urlquery.OneOf(&c.Topology.Preset, PresetPubSub, PresetQueue, PresetRouting),
		"exchange":       urlquery.Text(&c.Topology.Exchange),
		"exchange_type":  urlquery.OneOf(&c.Topology.ExchangeType, ExchangeTopic, ExchangeDirect),
		"queue_type":     urlquery.OneOf(&c.Topology.QueueType, QueueQuorum, QueueClassic),
		"delivery_limit": urlquery.Positive(&c.Topology.DeliveryLimit),
		"declare":        urlquery.Choice(&c.Topology.AsIs, "true", "false"),

		"retry_delays":     durations(&c.Consume.RetryDelays),
		"redelivery_delay": urlquery.Duration(&c.Consume.RedeliveryDelay),
		"consumer_timeout": urlquery.Duration(&c.Consume.ConsumerTimeout),
		"time":             urlquery.Choice(&c.Consume.ProducerTime, "none", "producer"),

		"publish_timeout":   urlquery.Duration(&c.Publish.Timeout),
		"max_message_bytes": urlquery.Positive(&c.Publish.MaxBytes),
	}
}

// durations takes a list such as 1s,10s,1m.
func durations(field *[]time.Duration) urlquery.Setter {
	return func(value string) string {
		var list []time.Duration
		for text := range strings.SplitSeq(value, ",") {
			d, err := time.ParseDuration(text)
			if err != nil {
				return "use growing durations such as 1s,10s,1m"
			}
			list = append(list, d)
		}
		if !growing(list) {
			return "use growing durations of whole milliseconds, a day at most, such as 1s,10s,1m"
		}
		*field = list
		return ""
	}
}
