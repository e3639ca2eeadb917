package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/millpond-go/millpond/internal/awsconfig"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/stores"
)

// Scheme is the URL scheme of this store.
const Scheme = "dynamodb"

// Config configures a [Store]. The zero value is valid.
type Config struct {
	// AWS, if not nil, is used, with Region and Endpoint on top. Otherwise the SDK's default chain
	// finds region and credentials.
	AWS *aws.Config

	Region   string `config:"region"`   // empty: that of the field AWS, or what the SDK finds
	Endpoint string `config:"endpoint"` // of DynamoDB Local or a VPC endpoint, such as http://127.0.0.1:8000; empty: Amazon's

	// TablePrefix begins the names of the tables, inbox and content; "" means "millpond_".
	TablePrefix string `config:"prefix"`

	// Retention is the age at which DynamoDB may delete completed items and outputs of the history,
	// free of charge: a day or more. An older message without an item is Stale. The shortest
	// Retention that any process of a consumer ever had counts. Zero: they are never deleted.
	Retention time.Duration `config:"retention" check:"positive"`

	// AutoMigrate creates the tables when the store is opened.
	AutoMigrate bool `config:"migrate"`
}

// minRetention is much longer than any request takes.
const minRetention = 24 * time.Hour

// Open opens the store that a dynamodb:// URL names. The package documentation lists the
// parameters.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("dynamodb: the URL cannot be parsed: write dynamodb://?region=eu-central-1")
	}
	return openURL(ctx, u)
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	return urlmux.Open[*Store](ctx, u, parseURL, New)
}

func init() {
	stores.DefaultMux().Handle(Scheme, urlmux.Opened[stores.Store](openURL))
	stores.DefaultMux().HandleCheck(Scheme, urlmux.Parsed(parseURL))
}

// parseURL reads a URL. One error lists everything that is wrong with it.
func parseURL(u *url.URL) (Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return Config{}, fmt.Errorf("dynamodb: %w", err)
	}
	var (
		c    Config
		errs []error
	)
	if u.Scheme != Scheme {
		errs = append(errs, fmt.Errorf("dynamodb: the scheme is %q: write dynamodb://", u.Scheme))
	}
	if u.User != nil {
		errs = append(errs, errors.New("dynamodb: the URL names a user: remove it, credentials come from the SDK's provider chain, such as AWS_ACCESS_KEY_ID, AWS_PROFILE or the role of the machine"))
	}
	if u.Opaque != "" || u.Host != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		errs = append(errs, errors.New("dynamodb: the URL names a host, path or fragment: write dynamodb://?region=eu-central-1, and prefix=orders_ for tables of another name"))
	}
	errs = append(errs, urlquery.Read(string(pkg), u, urlquery.Fields(&c))...)
	return c, errors.Join(append(errs, c.validate(urlquery.InURL(&c)))...)
}

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)

func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(string(pkg), c, named, func(wrong urlquery.Wrong) {
		if c.TablePrefix != "" && !prefixForm.MatchString(c.TablePrefix) {
			wrong("TablePrefix", fmt.Sprintf("%q", c.TablePrefix), "use at most 200 letters, digits, '_', '-' and '.'")
		}
		if c.Retention > 0 && c.Retention < minRetention {
			wrong("Retention", c.Retention, "use a day or more, so that nothing is forgotten that is still under way")
		}
		if e := c.Endpoint; e != "" && !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
			wrong("Endpoint", fmt.Sprintf("%q", e), "write http:// or https:// and the address")
		}
	})
}

// load finds region and credentials.
func (c *Config) load(ctx context.Context) (loaded aws.Config, hangUp func(), err error) {
	wanted := awsconfig.Wanted{
		Package: string(pkg), AWS: c.AWS, Region: c.Region, Endpoint: c.Endpoint,
		Connections: 100, // room for bursts
	}
	return awsconfig.Load(ctx, wanted) //nolint:wrapcheck // it has the prefix
}
