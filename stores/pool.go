package stores

import "time"

// Pool bounds how many transactions a store has open at a time. A claim beyond that waits for a
// connection.
type Pool struct {
	Max     int    // 0: no bound
	Setting string // the name of its setting, such as "pool_max_conns"
	Raise   string // how to raise it in the URL, such as "pool_max_conns=%d among its parameters"
}

// PoolReporter is implemented by stores that count the use of their connections.
type PoolReporter interface {
	// PoolUse does no I/O. It is safe for concurrent use.
	PoolUse() PoolUse
}

// PoolUse describes the use of a store's connections.
type PoolUse struct {
	InUse, Idle int

	// Since the store was opened: how many calls waited for a connection, and their waiting time
	// in total.
	Waits  int64
	Waited time.Duration
}
