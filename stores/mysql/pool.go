package mysql

import (
	"context"
	"database/sql"
	"fmt"
)

// connection takes one out of a pool, and names the pool if none became free in time.
func connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err == nil {
		return conn, nil
	}
	if pool := db.Stats(); ctx.Err() != nil && pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections {
		err = fmt.Errorf("no connection became free in time, all %d are in use: %w", pool.MaxOpenConnections, err)
	}
	return nil, err
}
