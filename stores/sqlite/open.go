package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/stores"
)

// Open opens the file that a sqlite:// URL names. The package documentation lists the parameters.
// Unlike New it migrates by default.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		if strings.HasPrefix(rawURL, "sqlite://:memory:") {
			u = &url.URL{Scheme: "sqlite", Path: ":memory:"}
		} else {
			return nil, errors.New("sqlite: the URL cannot be parsed: write sqlite:///absolute/path.db or sqlite://relative/path.db, " +
				"and percent-encode special characters in it")
		}
	}
	return openURL(ctx, u)
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	path, c, err := parseURL(u)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return New(ctx, path, c)
}

func init() {
	stores.DefaultMux().Handle("sqlite", urlmux.Opened[stores.Store](openURL))
	stores.DefaultMux().HandleCheck("sqlite", func(u *url.URL) error {
		if _, _, err := parseURL(u); err != nil {
			return fmt.Errorf("sqlite: %w", err)
		}
		return nil
	})
}

// parseURL reads a URL. One error lists everything that is wrong with it.
func parseURL(u *url.URL) (path string, c Config, err error) {
	c.AutoMigrate = true
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	path = u.Host + u.Path
	switch {
	case u.Scheme != "sqlite":
		problem("the scheme is %q: write sqlite://, or open it with the package of that database", u.Scheme)
	case u.Opaque != "":
		problem("there is no // after the scheme: write sqlite:///absolute/path.db or sqlite://relative/path.db")
	case u.User != nil:
		problem("a file has no user: percent-encode @ in the path as %%40")
	case u.Fragment != "":
		problem("percent-encode # in the path as %%23")
	case path == "":
		problem("there is no path: write sqlite:///absolute/path.db or sqlite://relative/path.db")
	case strings.ContainsRune(path, 0):
		problem("the path contains a NUL")
	}
	query, queryErr := url.ParseQuery(u.RawQuery)
	if queryErr != nil {
		problem("the parameters cannot be parsed (%v): write name=value&name=value", queryErr)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) != 1 {
			problem("%s is given %d times: give it once", name, len(query[name]))
			continue
		}
		if p := c.set(name, query[name][0]); p != "" {
			problem("%s", p)
		}
	}
	if len(problems) > 0 {
		return "", Config{}, errors.New("the URL is not valid: " + strings.Join(problems, "; "))
	}
	return path, c, nil
}

// misplaced are parameters of other stores and drivers, with their names here.
var misplaced = map[string]string{
	"millpond_prefix": "prefix", "lock_timeout": "busy_timeout", "_busy_timeout": "busy_timeout", "timeout": "busy_timeout",
	"synchronous_commit": "synchronous", "_synchronous": "synchronous",
}

// set sets the field of a parameter, or returns what is wrong with it.
func (c *Config) set(name, value string) (problem string) {
	var expected string
	var valid bool
	switch name {
	case "migrate":
		expected, valid = "auto or never", value == "auto" || value == "never"
		c.AutoMigrate = value == "auto"
	case "prefix":
		expected, valid = "a prefix such as billing_", value != ""
		c.TablePrefix = value
	case "busy_timeout":
		d, err := time.ParseDuration(value)
		expected, valid = "a duration such as 5s or 500ms", err == nil && d > 0
		c.BusyTimeout = d
	case "synchronous":
		expected, valid = "full or normal", value == "full" || value == "normal"
		c.Synchronous = Full
		if value == "normal" {
			c.Synchronous = Normal
		}
	default:
		if instead, ok := misplaced[name]; ok {
			return fmt.Sprintf("parameter %q is for other URLs: did you mean %s?", name, instead)
		}
		return fmt.Sprintf("parameter %s is unknown: use migrate, prefix, busy_timeout or synchronous", urlmux.ShownName(name))
	}
	if valid {
		return ""
	}
	return fmt.Sprintf("%s is %q: use %s", name, value, expected)
}
