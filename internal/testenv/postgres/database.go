package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// databasePrefix marks the databases that are ours to drop.
const databasePrefix = "millpond_test_"

// CreateDatabase creates an empty database on the server at serverURL, whose role
// must be allowed to, and returns the new database's address.
func CreateDatabase(ctx context.Context, serverURL string) (string, error) {
	u, err := parseURL(serverURL)
	if err != nil {
		return "", err
	}
	name := databasePrefix + strings.ToLower(rand.Text())
	// Unlike template1, template0 never has a client whose presence would be an error.
	if err := execute(ctx, serverURL, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", fmt.Errorf("postgres: create a database: %w", err)
	}
	u.Path = "/" + name
	return u.String(), nil
}

// DropDatabase drops a database made by CreateDatabase, and disconnects its clients.
func DropDatabase(ctx context.Context, serverURL, databaseURL string) error {
	u, err := parseURL(databaseURL)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(u.Path, "/")
	if !strings.HasPrefix(name, databasePrefix) {
		return fmt.Errorf("postgres: drop a database: %q is not one of ours", name)
	}
	statement := "DROP DATABASE IF EXISTS " + pgx.Identifier{name}.Sanitize() + " WITH (FORCE)"
	if err := execute(ctx, serverURL, statement); err != nil {
		return fmt.Errorf("postgres: drop a database: %w", err)
	}
	return nil
}

func execute(ctx context.Context, serverURL, statement string) error {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The text may hold a password, so it is not repeated.
		return nil, errors.New("postgres: not a URL of the form postgres://user:password@host:port/database")
	}
	return u, nil
}
