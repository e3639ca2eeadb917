package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// Exhausted returns the error for a *sql.DB that gave no connection. If none became free in time,
// it wraps stores.ErrBusy. database/sql returns ctx's bare error then; drivers add what they were
// doing.
func Exhausted(ctx context.Context, db *sql.DB, err error) error {
	if err == nil || err != ctx.Err() { //nolint:errorlint // this very value
		return err
	}
	if stats := db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return NoneFree(stats.MaxOpenConnections, err)
	}
	return err
}

// NoneFree returns the error for a pool whose connections are all in use.
func NoneFree(connections int, err error) error {
	return fmt.Errorf("%w: no connection of the pool became free in time, all %d are in use: %w", stores.ErrBusy, connections, err)
}

// PoolUse is how a *sql.DB is used.
func PoolUse(db *sql.DB) stores.PoolUse {
	use := db.Stats()
	return stores.PoolUse{InUse: use.InUse, Idle: use.Idle, Waits: use.WaitCount, Waited: use.WaitDuration}
}
