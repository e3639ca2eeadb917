package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	modernc "modernc.org/sqlite"
)

// connector opens connections to one file, set up for one purpose.
type connector struct {
	driver driver.Driver
	dsn    string
	setup  string // PRAGMA statements
	wal    bool   // switch the file to WAL mode
	wrap   func(native) driver.Conn
}

// native is what this package needs of the driver's connections.
type native interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	modernc.HookRegisterer
}

var _ driver.Connector = (*connector)(nil)

// Connect opens and sets up a connection. Settings are made here, not in the DSN, so that they
// override those of the program's connection hooks.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	conn, ok := opened.(native)
	if !ok {
		return nil, lacks(opened)
	}
	if _, err := conn.ExecContext(ctx, c.setup, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if c.wal {
		if err := useWAL(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	if c.wrap == nil {
		return conn, nil
	}
	return c.wrap(conn), nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.driver }

// useWAL switches the file to WAL mode, which is persistent. SQLite answers with the resulting
// mode, which is another one where WAL cannot work.
func useWAL(ctx context.Context, conn native) error {
	rows, err := conn.QueryContext(ctx, "PRAGMA main.journal_mode = WAL", nil)
	if err != nil {
		return err
	}
	mode := make([]driver.Value, 1)
	err = rows.Next(mode)
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	if err == nil && mode[0] != "wal" {
		err = fmt.Errorf("the journal mode is %v and cannot be changed to WAL: use a file on a local disk", mode[0])
	}
	return err
}

// registeredDriver returns the registered driver, with the program's functions, collations and
// modules.
func registeredDriver() (driver.Driver, error) {
	db, err := sql.Open("sqlite", "") // connects to nothing
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	if d, ok := db.Driver().(*modernc.Driver); ok {
		return d, nil
	}
	return nil, fmt.Errorf("database/sql's driver \"sqlite\" is a %T, not that of modernc.org/sqlite", db.Driver())
}

// dsn names an absolute path for the driver. It escapes the path, so that no part of it becomes a
// parameter.
func dsn(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?_txlock=immediate"
}
