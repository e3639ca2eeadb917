package stores

import (
	"context"
	"time"
)

// Attendance is implemented by stores that keep which processes serve a consumer. Who died
// has not left: messages that it had in flight may end another process, too, and
// subscribers that do not tell redeliveries apart bring them as if for the first time.
// Times are compared by the database's clock alone. Errors wrap ErrUnavailable,
// ErrNotMigrated, ErrSchemaNewer, ErrNotRegistered or ErrClosed.
type Attendance interface {
	// Attend notes that a process serves the consumer now, and returns the others that are
	// noted. The name is at most 36 bytes of ASCII.
	Attend(ctx context.Context, c Consumer, process string) ([]Attendant, error)

	// Leave removes a process that was not noted again for at least unseen.
	Leave(ctx context.Context, c Consumer, process string, unseen time.Duration) error
}

// Attendant is a process that serves a consumer, or died.
type Attendant struct {
	Process string
	Unseen  time.Duration // since it was noted last
}
