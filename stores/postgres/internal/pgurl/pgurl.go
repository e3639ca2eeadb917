// Package pgurl reads the URLs of the stores on PostgreSQL: those of pgx, with parameters
// of millpond's.
package pgurl

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// URL is what a URL says.
type URL struct {
	Schema, TablePrefix string

	// Pooled: a pooler in transaction mode is in between. The pool's connections prepare
	// no statements then.
	Pooled bool

	Pool *pgxpool.Config
}

// Parse reads a URL, which it may change. Errors contain no secrets of it.
func Parse(u *url.URL) (URL, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // its text repeats what may be a secret
		return URL{}, errors.New("the URL's parameters cannot be parsed: separate them with & and percent-encode special characters")
	}
	parsed := URL{Schema: query.Get("millpond_schema"), TablePrefix: query.Get("millpond_prefix")}
	query.Del("millpond_schema")
	query.Del("millpond_prefix")
	for name := range query {
		if strings.HasPrefix(name, "millpond_") {
			return URL{}, fmt.Errorf("the URL has the unknown parameter %q: there are millpond_schema and millpond_prefix", name)
		}
	}
	switch mode := query.Get("pgbouncer"); mode {
	case "":
	case "transaction":
		parsed.Pooled = true
	default:
		return URL{}, errors.New("the URL's parameter pgbouncer is not known in that form: write pgbouncer=transaction for a pooler in transaction mode, and leave it out for any other")
	}
	query.Del("pgbouncer")
	u.RawQuery = query.Encode()
	u.Scheme, _, _ = strings.Cut(u.Scheme, "+") // of the stores alone
	parsed.Pool, err = pgxpool.ParseConfig(u.String())
	if err != nil {
		// pgx's text repeats the URL with the password masked only in known places.
		return URL{}, fmt.Errorf("the URL of host %q is not valid: %w", u.Host, reason(err))
	}
	if !parsed.Pooled {
		return parsed, nil
	}
	switch conn := parsed.Pool.ConnConfig; {
	case !query.Has("default_query_exec_mode"):
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	case conn.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || conn.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec:
		return URL{}, errors.New("the URL has pgbouncer=transaction and a default_query_exec_mode that needs one connection for several trips: " +
			"leave it out, or use cache_describe, exec or simple_protocol")
	}
	return parsed, nil
}

// Check says what is wrong with a URL without opening it, in the name of a package.
func Check(pkg string, u *url.URL) error {
	parsed, err := Parse(u)
	if err == nil {
		_, err = tables.New(nil, tables.Config{Schema: parsed.Schema, TablePrefix: parsed.TablePrefix})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	return nil
}

func reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("check its parameters")
}

// ErrNoListen: notifications do not pass poolers in transaction mode.
var ErrNoListen = fmt.Errorf("postgres: listen: %w: a pooler in transaction mode lets no notification pass", errors.ErrUnsupported)

// ConnectError says once why the server at host cannot be reached. The driver says it for
// each address, and again for each kind of encryption that it has tried.
func ConnectError(host string, err error) error { return &connectError{host, err} }

type connectError struct {
	host string
	err  error
}

func (e *connectError) Error() string {
	cause := e.err
	if c, ok := errors.AsType[*pgconn.ConnectError](cause); ok {
		cause = cmp.Or(c.Unwrap(), cause)
	}
	var reasons []string
	for line := range strings.Lines(cause.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(reasons, line) {
			reasons = append(reasons, line)
		}
	}
	return fmt.Sprintf("postgres: cannot connect to %s: %s", e.host, strings.Join(reasons, "; "))
}

func (e *connectError) Unwrap() error { return tables.Unavailable(e.err) }
