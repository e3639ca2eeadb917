package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Config is what a PgBouncer may differ in.
type Config struct {
	// DatabaseURL is an address on the server behind it, which must be up. All its
	// databases are served, with the rights of the URL's role.
	DatabaseURL string

	// PreparedStatements asks for a PgBouncer, at least 1.21, that follows prepared
	// statements. Without, it is the one of the distribution, and clients must not
	// prepare statements.
	PreparedStatements bool

	// Settings go into pgbouncer.ini, over those of transaction pooling.
	Settings map[string]string
}

// Server is a private PgBouncer; see daemon.Server.
type Server struct {
	*daemon.Server

	databaseURL string
	minor       int
}

// configFile is the name of the file with the settings.
const configFile = "pgbouncer.ini"

// Start starts a PgBouncer and waits until it answers, with the help of the server behind
// it. Where none is installed it installs one. ctx bounds the start only. The caller must
// call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	upstream, err := pgconn.ParseConfig(config.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("pgbouncer: %w", err)
	}
	if _, err := through(config.DatabaseURL, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	found, err := find(ctx, config)
	if err != nil {
		return nil, err
	}
	account, err := host.Unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("pgbouncer: %w", err)
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name: "pgbouncer",
		Configure: func(dir, address string) error {
			path := filepath.Join(dir, configFile)
			text := ini(config, upstream, found.minor, address)
			return errors.Join(os.WriteFile(path, []byte(text), 0o600), account.Chown(path))
		},
		Command: func(dir, _ string) host.Command {
			command := found.command
			command.Args = slices.Concat(command.Args, []string{filepath.Join(dir, configFile)})
			command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC"}
			command.Account = account
			return command
		},
		Ready: func(ctx context.Context, address string) error {
			u, err := through(config.DatabaseURL, address)
			if err != nil {
				return err
			}
			return answers(ctx, u)
		},
		InUse: []string{"Address already in use"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, databaseURL: config.DatabaseURL, minor: found.minor}, nil
}

// ini returns the file with the settings.
func ini(config Config, upstream *pgconn.Config, minor int, address string) string {
	hostname, port, _ := net.SplitHostPort(address)
	settings := map[string]string{
		"pool_mode":                 "transaction",
		"auth_type":                 "any", // every client is let in, and becomes the role of the URL
		"default_pool_size":         "5",   // few, so that clients do share them
		"server_round_robin":        "1",   // and the next transaction runs on another
		"max_client_conn":           "500",
		"ignore_startup_parameters": "extra_float_digits", // which some drivers send to every server
	}
	if minor >= firstToPrepare {
		settings["max_prepared_statements"] = "0"
		if config.PreparedStatements {
			settings["max_prepared_statements"] = "100"
		}
	}
	maps.Copy(settings, config.Settings)
	maps.Copy(settings, map[string]string{"listen_addr": hostname, "listen_port": port, "unix_socket_dir": ""})

	var b strings.Builder
	fmt.Fprintf(&b, "[databases]\n* = host=%s port=%d user=%s", upstream.Host, upstream.Port, quote(upstream.User))
	if upstream.Password != "" {
		fmt.Fprintf(&b, " password=%s", quote(upstream.Password))
	}
	b.WriteString("\n\n[pgbouncer]\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, settings[name])
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// through returns a database's URL with the address of a PgBouncer.
func through(databaseURL, address string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The text may hold a password, so it is not repeated.
		return "", errors.New("pgbouncer: not a URL of the form postgres://user:password@host:port/database")
	}
	u.Host = address
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// answers returns nil if a query is answered through the PgBouncer.
func answers(ctx context.Context, databaseURL string) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT 1")
	return errors.Join(err, conn.Close(ctx))
}

// URL returns the database's URL, leading through the PgBouncer.
func (s *Server) URL() string {
	u, err := through(s.databaseURL, s.Address())
	if err != nil {
		panic(err) // Start has done the same
	}
	return u
}

// Version returns the version of the PgBouncer, such as "1.18".
func (s *Server) Version() string { return fmt.Sprintf("1.%d", s.minor) }
