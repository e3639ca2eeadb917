// Package pgurl reads the URLs of the stores on PostgreSQL: pgx's URLs, with millpond's own
// parameters.
package pgurl

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/exposed"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// URL is a parsed URL.
type URL struct {
	Schema, TablePrefix string

	// AnyServer: the server is not checked.
	AnyServer bool

	// Pooled: the URL names a pooler in transaction mode, so connections prepare no statements.
	Pooled bool

	Pool *pgxpool.Config
}

// poolParameter is the prefix of parameters for pgx's pool.
const poolParameter = "pool_"

// misplaced are parameters of other stores, with their names here. The server would take them for
// settings.
var misplaced = map[string]string{
	"max_open_conns": "pool_max_conns", "max_idle_conns": "pool_min_idle_conns",
	"prefix": "millpond_prefix", "schema": "millpond_schema", "migrate": "",
	"busy_timeout": "lock_timeout", "synchronous": "synchronous_commit",
	"tls": "sslmode", "tls_ca": "sslrootcert", "tls_cert": "sslcert", "tls_key": "sslkey",
	"timeout": "connect_timeout", "readTimeout": "statement_timeout", "writeTimeout": "",
	"charset": "client_encoding", "collation": "", "loc": "timezone", "parseTime": "",
	"autocommit": "", "multiStatements": "", "interpolateParams": "",
}

// checkScheme refuses pgx's other form, host=… password=…, and what else has no scheme of ours: pgx
// would repeat it in an error.
func checkScheme(u *url.URL) error {
	switch scheme := strings.TrimSuffix(u.Scheme, "+sql"); {
	case *u == url.URL{}:
		return errors.New("the URL is empty: write postgres://user:password@host:port/database")
	case scheme != "postgres" && scheme != "postgresql" || u.Opaque != "":
		return errors.New("the URL does not begin with postgres:// or postgresql://: write postgres://user:password@host:port/database")
	}
	return nil
}

// Parse reads a URL, which it may change. Its errors contain no secrets from the URL.
func Parse(u *url.URL) (URL, error) {
	if err := checkScheme(u); err != nil {
		return URL{}, err
	}
	if err := urlquery.Stray(u); err != nil {
		return URL{}, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // its text may repeat a secret
		return URL{}, errors.New("the URL's parameters cannot be parsed: separate them with & and percent-encode special characters")
	}
	parsed := URL{Schema: query.Get("millpond_schema"), TablePrefix: query.Get("millpond_prefix")}
	query.Del("millpond_schema")
	query.Del("millpond_prefix")
	if server := query["millpond_server"]; len(server) > 0 {
		if !slices.Equal(server, []string{"any"}) {
			return URL{}, errors.New("the URL's parameter millpond_server is not known in that form: write millpond_server=any to skip the check of another server, and leave it out for PostgreSQL")
		}
		parsed.AnyServer = true
	}
	query.Del("millpond_server")
	for name := range query {
		if strings.HasPrefix(name, "millpond_") {
			return URL{}, fmt.Errorf("the URL has the unknown parameter %s: there are millpond_server, millpond_schema and millpond_prefix", urlmux.ShownName(name))
		}
	}
	if problems := urlquery.Misplaced(query, misplaced); len(problems) > 0 {
		return URL{}, errors.New(strings.Join(problems, "; "))
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
	u.Scheme, _, _ = strings.Cut(u.Scheme, "+") // the suffix is only for the stores
	parsed.Pool, err = pgxpool.ParseConfig(u.String())
	if err != nil {
		// pgx's text repeats the URL, and masks the password only in known places.
		return URL{}, fmt.Errorf("the URL of host %q is not valid: %w", u.Host, reason(err))
	}
	for name := range parsed.Pool.ConnConfig.RuntimeParams {
		if strings.HasPrefix(name, poolParameter) {
			return URL{}, fmt.Errorf("the URL has the unknown parameter %s: use pool_max_conns or another one of pgxpool's", urlmux.ShownName(name))
		}
	}
	if !parsed.Pooled {
		return parsed, nil
	}
	switch conn := parsed.Pool.ConnConfig; {
	case !query.Has("default_query_exec_mode"):
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	case conn.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || conn.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec:
		return URL{}, errors.New("the URL has pgbouncer=transaction and a default_query_exec_mode that needs one connection for several round trips: " +
			"leave it out, or use cache_describe, exec or simple_protocol")
	}
	return parsed, nil
}

// Check reports errors in a URL without opening it. They begin with a package's name.
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

// Exposure returns an error if the password, from the URL or from pgx's environment, could travel
// without verified TLS. It begins with a package's name. A server may ask for the password itself,
// so sslmode=require, which verifies nothing, is not enough. Only SCRAM does not reveal the
// password: if nothing else is allowed, or it is bound to the TLS connection, there is no error.
func Exposure(pkg string, u *url.URL) error {
	parsed, err := Parse(u)
	if err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	c := parsed.Pool.ConnConfig
	if c.Password == "" || c.ChannelBinding == "require" || c.RequireAuth == "scram-sha-256" {
		return nil
	}
	servers := []exposed.Server{serverOf(c.Host, c.Port, c.TLSConfig)}
	for _, f := range c.Fallbacks { // other hosts, and other attempts of sslmode
		servers = append(servers, serverOf(f.Host, f.Port, f.TLSConfig))
	}
	if err := exposed.Password(servers, "write sslmode=verify-full, with sslrootcert for an authority of your own"); err != nil {
		return fmt.Errorf("%s: %w", pkg, err)
	}
	return nil
}

func serverOf(host string, port uint16, c *tls.Config) exposed.Server {
	if !strings.HasPrefix(host, "/") { // not a directory of sockets
		host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	return exposed.Server{Address: host, TLS: c}
}

func reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("check its parameters")
}

// ErrNoListen: notifications do not pass poolers in transaction mode.
var ErrNoListen = fmt.Errorf("postgres: listen: %w: a pooler in transaction mode lets no notification pass", errors.ErrUnsupported)

// ConnectError says once why the server at host cannot be reached. The driver repeats the reason
// for each address and each kind of encryption that it tried.
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
	said, answered := errors.AsType[*pgconn.PgError](e.err)
	for line := range strings.Lines(cause.Error()) {
		line = strings.TrimSpace(line)
		if line == "" || slices.Contains(reasons, line) || answered && strings.Contains(line, refusedTLS) {
			continue
		}
		reasons = append(reasons, line)
	}
	text := fmt.Sprintf("postgres: cannot connect to %s: %s", e.host, strings.Join(reasons, "; "))
	if answered && fixes[said.Code] != "" {
		text += ": " + fixes[said.Code]
	}
	return text
}

// refusedTLS is no reason where the server has answered without TLS, as it may by default (sslmode=prefer).
const refusedTLS = "server refused TLS connection"

// fixes say what to do when a server refuses a connection.
var fixes = map[string]string{
	"3D000": "create it, or name another in the URL",
	"28P01": "check user and password",
	"28000": "check user and password, and what pg_hba.conf requires",
	"42704": "check the parameters of the URL: one that pgx does not know is sent as a setting",
}

func (e *connectError) Unwrap() error { return tables.Unavailable(e.err) }
