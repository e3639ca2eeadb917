package stores

import (
	"context"
	"time"
)

// Attendance is implemented by stores that record which processes serve a consumer. A process
// that died has not left. Messages that it had in flight may end another process, too, and
// subscribers that do not flag redeliveries deliver them like first deliveries. Only the
// database's clock counts. Errors wrap ErrUnavailable, ErrNotMigrated, ErrSchemaNewer,
// ErrNotRegistered or ErrClosed.
type Attendance interface {
	// Attend records that a process serves the consumer now, and returns the other recorded
	// processes. The name is at most 36 bytes of ASCII.
	Attend(ctx context.Context, c Consumer, process string) ([]Attendant, error)

	// Leave removes a process that has not attended for at least unseen.
	Leave(ctx context.Context, c Consumer, process string, unseen time.Duration) error
}

// Attendant is a process that serves a consumer, or has died.
type Attendant struct {
	Process string
	Unseen  time.Duration // since it last attended
}
