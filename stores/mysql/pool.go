package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// connection takes one out of a pool, and names the pool if none became free in time.
func connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err == nil {
		return conn, nil
	}
	if pool := db.Stats(); err == ctx.Err() && pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections { //nolint:errorlint // database/sql's own words
		err = fmt.Errorf("%w: no connection became free in time, all %d are in use: %w", stores.ErrBusy, pool.MaxOpenConnections, err)
	}
	return nil, err
}
