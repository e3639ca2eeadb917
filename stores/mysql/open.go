package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/exposed"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/stores"
)

// Open returns a store on connections of its own, from a URL. The package documentation lists the
// parameters. It connects once, as OpenDB does.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("mysql: the URL cannot be parsed: write mysql://user:password@host/database, check host:port, and percent-encode special characters in a password")
	}
	return openURL(ctx, u)
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	driverConfig, c, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return OpenDB(ctx, driverConfig, c)
}

func init() {
	stores.DefaultMux().Handle("mysql", urlmux.Opened[stores.Store](openURL))
	stores.DefaultMux().HandleCheck("mysql", func(u *url.URL) error {
		_, _, err := parseURL(u)
		return err
	})
	stores.DefaultMux().HandleExposure("mysql", exposure)
}

// exposure returns an error if a URL's password could travel unprotected. A server may ask for the
// password itself, and the key that the driver would encrypt it with also comes from the server.
func exposure(u *url.URL) error {
	c, _, err := parseURL(u)
	if err != nil || c.Passwd == "" {
		return err
	}
	server := exposed.Server{Address: c.Addr, TLS: c.TLS}
	if c.AllowFallbackToPlaintext {
		server.TLS = nil
	}
	if err := exposed.Password([]exposed.Server{server}, "write tls=true, or the name of a configuration that verifies the certificate"); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

// misplaced are parameters of other stores, and misspelt ones of the driver, with their names here.
// The driver would take them for system variables.
var misplaced = map[string]string{
	"pool_max_conns": "max_open_conns", "pool_min_conns": "", "pool_min_idle_conns": "",
	"pool_max_conn_lifetime": "", "pool_max_conn_idle_time": "", "pool_health_check_period": "",
	"prefix": "millpond_prefix", "schema": "millpond_schema", "search_path": "millpond_schema",
	"migrate": "", "pgbouncer": "", "synchronous": "", "busy_timeout": "innodb_lock_wait_timeout",
	"sslmode": "tls", "sslrootcert": "tls", "sslcert": "tls", "sslkey": "tls",
	"connect_timeout": "timeout", "application_name": "connectionAttributes",
	"parsetime": "parseTime", "readtimeout": "readTimeout", "writetimeout": "writeTimeout",
}

// problems are the errors in a URL.
type problems []error

func (p *problems) addf(format string, args ...any) {
	*p = append(*p, fmt.Errorf("mysql: "+format, args...))
}

// parseURL reads a URL. One error lists everything that is wrong with it.
func parseURL(u *url.URL) (*mysql.Config, Config, error) {
	if err := urlquery.Stray(u); err != nil {
		return nil, Config{}, fmt.Errorf("mysql: %w", err)
	}
	var p problems
	database := databaseOf(u, &p)
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		p.addf("the URL's query cannot be parsed: write parameter=value pairs joined by &, percent-encoded")
	}
	c := takeConfig(query, &p)
	refuseParameters(query, &p)
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	// With the address, because the certificate must name its host.
	driverConfig, err := mysql.ParseDSN("tcp(" + address + ")/?" + query.Encode())
	if err != nil {
		p.addf("parameters of the driver: %w", err)
	}
	if len(p) > 0 {
		return nil, Config{}, errors.Join(p...)
	}
	driverConfig.User = u.User.Username()
	driverConfig.Passwd, _ = u.User.Password()
	driverConfig.DBName = database
	return driverConfig, c, nil
}

// databaseOf returns the database in a URL.
func databaseOf(u *url.URL, p *problems) string {
	database := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme != "mysql" || u.Opaque != "":
		p.addf("write the URL as mysql://user:password@host/database")
	case u.Hostname() == "":
		p.addf("the URL names no host: write mysql://user:password@host/database")
	case !isPort(u.Port()):
		p.addf("the port in the URL is %s: check host:port", u.Port())
	case database == "" || strings.Contains(database, "/"):
		p.addf("the URL names no database: write mysql://user:password@host/database")
	}
	return database
}

// takeConfig removes millpond's parameters from a query.
func takeConfig(query url.Values, p *problems) (c Config) {
	for name, values := range query {
		if len(values) > 1 {
			p.addf("parameter %s is given %d times: give it once", urlmux.ShownName(name), len(values))
		}
	}
	take := func(name string) string {
		value := query.Get(name)
		query.Del(name)
		return value
	}
	c.Schema, c.TablePrefix = take("millpond_schema"), take("millpond_prefix")
	switch v := take("millpond_server"); v {
	case "":
	case "any":
		c.AnyServer = true
	default:
		p.addf(`parameter "millpond_server" is %q: write any to skip the check of another server, and leave it out for MySQL, MariaDB and TiDB`, v)
	}
	if v := take("max_open_conns"); v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			p.addf(`parameter "max_open_conns" is %q: use a positive number such as 32`, v)
		}
		c.MaxOpenConns = int(n)
	}
	return c
}

// refuseParameters reports parameters that must not reach the driver.
func refuseParameters(query url.Values, p *problems) {
	for _, text := range urlquery.Misplaced(query, misplaced) {
		p.addf("%s", text)
	}
	for name := range query {
		switch {
		case strings.HasPrefix(name, "millpond_"):
			p.addf("parameter %s is not known: there are millpond_server, millpond_schema and millpond_prefix", urlmux.ShownName(name))
		case name == "autocommit" || name == "multiStatements":
			p.addf("parameter %s is set by millpond: remove it", name)
		}
	}
}

// isPort reports whether digits are a valid port, or empty.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}
