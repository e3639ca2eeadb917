package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// databasePrefix marks the databases that are ours to drop.
const databasePrefix = "millpond_test_"

// silent is for the driver's own log: what it says there, it also returns.
var silent = log.New(io.Discard, "", 0)

// ParseURL returns the driver's configuration for an address of the form
// mysql://user:password@host:port/database. Parameters are those of the driver's DSN.
// The error never has the password in it.
func ParseURL(raw string) (*driver.Config, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "mysql" || u.Hostname() == "" {
		return nil, errors.New("mysql: not a URL of the form mysql://user:password@host:port/database")
	}
	config, err := driver.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("mysql: the parameters of the URL: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
	config.DBName = strings.TrimPrefix(u.Path, "/")
	return config, nil
}

// Open returns a pool of connections to an address.
func Open(raw string) (*sql.DB, error) {
	config, err := ParseURL(raw)
	if err != nil {
		return nil, err
	}
	config.Logger = silent
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// CreateDatabase creates an empty database on the server at serverURL, whose account
// must be allowed to, and returns the new database's address.
func CreateDatabase(ctx context.Context, serverURL string) (string, error) {
	name := databasePrefix + strings.ToLower(rand.Text())
	err := onServer(ctx, serverURL, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE DATABASE "+name)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("mysql: create a database: %w", err)
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		return "", errors.New("mysql: not a URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// DropDatabase drops a database made by CreateDatabase, and disconnects its clients:
// it would wait for the end of their transactions.
func DropDatabase(ctx context.Context, serverURL, databaseURL string) error {
	config, err := ParseURL(databaseURL)
	if err != nil {
		return err
	}
	name := config.DBName
	if !strings.HasPrefix(name, databasePrefix) || strings.Contains(name, "`") {
		return fmt.Errorf("mysql: drop a database: %q is not one of ours", name)
	}
	err = onServer(ctx, serverURL, func(db *sql.DB) error {
		clients, err := clientsOf(ctx, db, name)
		for _, id := range clients {
			_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have gone by itself
		}
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+name+"`")
		return err
	})
	if err != nil {
		return fmt.Errorf("mysql: drop a database: %w", err)
	}
	return nil
}

// clientsOf returns the connections that have a database selected. On MySQL the list
// fails while anybody's statement has bytes in it that are no text, so it is asked again.
func clientsOf(ctx context.Context, db *sql.DB, database string) (ids []uint64, err error) {
	for range 100 {
		if ids, err = listClients(ctx, db, database); err == nil {
			return ids, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ids, err
		}
	}
	return ids, err
}

func listClients(ctx context.Context, db *sql.DB, database string) ([]uint64, error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID()", database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []uint64
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// onServer works on a connection to the server, not to any of its databases.
func onServer(ctx context.Context, serverURL string, work func(*sql.DB) error) error {
	db, err := Open(serverURL)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	return errors.Join(work(db), db.Close())
}
