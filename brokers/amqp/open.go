package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

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

// Open connects to the broker that a URL names. The package documentation lists the parameters. One
// error lists everything that is wrong with the URL, without user info and without values that may
// be secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// Check returns the error that [Open] returns before it connects. It is a brokers.Checker.
func Check(u *url.URL) error { return urlmux.Parsed(ParseURL)(u) }

// Exposure returns an error if a password, from the URL or the environment, could travel without
// verified TLS; guest's password is public. RabbitMQ receives the password itself. It is a
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

// ParseURL returns a URL's configuration, so that a program can change it before it calls [New].
// Its errors are those of [Open] before it connects.
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
		// The error does not quote the address, which may be part of a password.
		errs = append(errs, errors.New("amqp: the URL has an invalid address: check host:port, with commas between several, and percent-encode special characters in a password"))
	}
	if u.Opaque != "" {
		errs = append(errs, errors.New("amqp: the URL has no // after its scheme: write amqp://host:port/virtual-host"))
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	vhost, err := url.PathUnescape(path)
	if err != nil || strings.Contains(path, "/") {
		errs = append(errs, errors.New("amqp: the path of the URL is more than a virtual host: write / in its name as %2F; topics are given to Subscribe and Publish"))
	}
	c.VirtualHost = vhost

	secured := urlquery.TLS{On: u.Scheme == SchemeTLS}
	setters := urlquery.Fields(&c)
	maps.Copy(setters, urlquery.Fields(&secured))
	delete(setters, "tls") // the scheme decides
	delays := setters["retry_delays"]
	setters["retry_delays"] = func(value string) (fix string) {
		if fix = delays(value); fix == "" && !growing(c.Consume.RetryDelays) {
			fix = fixDelays
		}
		return fix
	}
	errs = append(errs, urlquery.Read(pkg, u, setters)...)
	if !secured.On && secured != (urlquery.TLS{}) {
		errs = append(errs, errors.New("amqp: the URL has parameters for TLS, which is off: write amqps://"))
	} else {
		config, problems := secured.Config(pkg)
		c.TLS, errs = config, append(errs, problems...)
	}
	if len(errs) == 0 {
		errs = append(errs, c.validate(urlquery.InURL(&c)))
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
