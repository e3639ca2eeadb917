package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// offline creates a store that never connects, to read its steps, with the names in its URL.
type offline func(schema, prefix string) (store, *sql.DB, error)

// offlines are keyed by the schemes that would open a connection.
var offlines = map[string]offline{
	"postgres": offlinePostgres, "postgresql": offlinePostgres,
	"postgres+sql": offlinePostgres, "postgresql+sql": offlinePostgres,
	"mysql": func(schema, prefix string) (store, *sql.DB, error) {
		db, err := sql.Open("mysql", "/")
		if err != nil {
			return nil, nil, err
		}
		s, err := mysql.New(db, mysql.Config{Schema: schema, TablePrefix: prefix})
		return s, db, err
	},
}

// offlinePostgres serves both packages, which have the same tables.
func offlinePostgres(schema, prefix string) (store, *sql.DB, error) {
	db, err := sql.Open("pgx", "")
	if err != nil {
		return nil, nil, err
	}
	s, err := sqldb.New(db, sqldb.Config{Schema: schema, TablePrefix: prefix})
	return s, db, err
}

// stepsOffline returns the steps of the store that a URL names.
func (p *program) stepsOffline(ctx context.Context, address *url.URL) (steps []stores.Migration, err error) {
	err = p.offline(ctx, address, func(s store) error {
		steps = s.Migrations()
		return nil
	})
	return steps, err
}

// offline calls do with the store of a URL or a scheme, without a connection.
func (p *program) offline(ctx context.Context, address *url.URL, do func(store) error) (err error) {
	without, ok := offlines[address.Scheme]
	if !ok {
		return p.elsewhere(address, func(address *url.URL) error { return p.use(ctx, address, do) })
	}
	whole := *address
	whole.Host, whole.Path = cmp.Or(whole.Host, "host"), cmp.Or(whole.Path, "/database")
	if err := stores.DefaultMux().Check(whole.String()); err != nil {
		return err
	}
	query := address.Query()
	s, db, err := without(query.Get("millpond_schema"), query.Get("millpond_prefix"))
	if db != nil {
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// elsewhere gives an SQLite store an empty directory, because opening its file would create it.
func (p *program) elsewhere(address *url.URL, do func(*url.URL) error) (err error) {
	if address.Scheme != sqliteScheme {
		return do(address)
	}
	dir, err := os.MkdirTemp("", "millpond-migrate-sql-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := *address
	file.Host, file.Path, file.RawPath = "", filepath.ToSlash(filepath.Join(dir, "empty.db")), ""
	return do(&file)
}
