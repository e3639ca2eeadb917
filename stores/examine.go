package stores

import (
	"context"
	"time"
)

// Severity says how much a finding matters.
type Severity string

const (
	SeverityError   Severity = "error"   // the store cannot be used as it is
	SeverityWarning Severity = "warning" // a promise is weakened, or something has stopped
	SeverityNote    Severity = "note"    // good to know
)

// Finding is what an examination has found. It has no secrets.
type Finding struct {
	Check    string // a word for programs, such as "durability"
	Severity Severity
	What     string // with its value
	Why      string // what it weakens
	Fix      string // a statement, a setting or a command; empty: there is none
}

// Examination says what an examination looks for.
type Examination struct {
	Now func() time.Time // the process's clock, which is compared with the server's
	// Role is what the store's account is for: what it lacks for that is a warning.
	Role Role
	// Overdue is how late a retry or an output may be before that is a warning.
	Overdue time.Duration
}

// Examiner is implemented by stores that can look at a live server for what weakens the
// promises of this module. It changes nothing, and is safe for concurrent use.
type Examiner interface {
	// Examine returns the findings in the order in which it has looked. What cannot be looked
	// at is a note. Errors wrap ErrUnavailable or ErrClosed.
	Examine(ctx context.Context, e Examination) ([]Finding, error)
}
