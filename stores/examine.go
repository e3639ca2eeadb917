package stores

import (
	"context"
	"time"
)

// Severity says how much a finding matters.
type Severity string

const (
	SeverityError   Severity = "error"   // the store cannot be used as it is
	SeverityWarning Severity = "warning" // a promise is weakened, or a part has stopped
	SeverityNote    Severity = "note"    // good to know
)

// Finding is a result of an examination. It has no secrets.
type Finding struct {
	Check    string // one word, for programs, such as "durability"
	Severity Severity
	What     string // with its value
	Why      string // what it weakens
	Fix      string // a statement, a setting or a command; empty: no fix
}

// Examination is the input of an examination.
type Examination struct {
	Now func() time.Time // the process's clock, which is compared with the server's
	// Role is the purpose of the store's account: missing rights for it are warnings.
	Role Role
	// Overdue is how late a retry or an output may be before a warning.
	Overdue time.Duration
}

// Examiner is implemented by stores that can examine a live server for settings and states that
// weaken the promises of this module. It changes nothing, and is safe for concurrent use.
type Examiner interface {
	// Examine returns the findings in the order of its checks. A check that cannot be made is a
	// note. Errors wrap ErrUnavailable or ErrClosed.
	Examine(ctx context.Context, e Examination) ([]Finding, error)
}
