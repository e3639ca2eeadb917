package stores

import "time"

// Pool bounds how many transactions a store has open at a time. A claim beyond it waits
// for a connection.
type Pool struct {
	Max     int    // 0: no bound
	Setting string // what sets it, such as "pool_max_conns"
	Raise   string // what to write into the URL for another, such as "pool_max_conns=%d among its parameters"
}

// PoolReporter is implemented by stores that know how their connections are used.
type PoolReporter interface {
	// PoolUse may be called at any time, and does no I/O.
	PoolUse() PoolUse
}

// PoolUse is how the connections of a store are used.
type PoolUse struct {
	InUse, Idle int

	// Since the store was opened: how often somebody had to wait for a connection, and
	// how long all of them together.
	Waits  int64
	Waited time.Duration
}
