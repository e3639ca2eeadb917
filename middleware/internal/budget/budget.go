// Package budget decides whether another attempt follows one that has failed. It knows plain
// values only: what was spent, what a policy allows, and what kind of failure it was.
package budget

import (
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Limits are what a policy allows.
type Limits struct {
	Attempts  int           // that may fail
	Uncounted int           // that may end by what is not the handler's fault
	Age       time.Duration // after the first failure
}

// Spent is what the attempts of a message have spent.
type Spent struct{ Attempts, Uncounted int }

// Counts reports whether attempts that end so spend the budget.
func Counts(class stores.Class) bool {
	return class != stores.ClassInterrupted && class != stores.ClassUnknown
}

// After is what is spent when another attempt has ended so. One that could have ended the
// process was counted before it began.
func (s Spent) After(class stores.Class, countedBefore bool) Spent {
	switch counts := Counts(class); {
	case counts && !countedBefore:
		s.Attempts++
	case !counts && countedBefore:
		s.Attempts--
		s.Uncounted++
	case !counts:
		s.Uncounted++
	}
	return s
}

// All is how many attempts were made.
func (s Spent) All() int { return s.Attempts + s.Uncounted }

// Again decides whether another attempt follows one that ended so. s includes it. The
// reason is for people, if none follows.
func (l Limits) Again(class stores.Class, s Spent, age time.Duration) (again bool, reason string) {
	counts := Counts(class)
	switch {
	case class == stores.ClassPermanent:
		return false, "a permanent error"
	case class == stores.ClassUnconfirmed:
		return false, "the effect may have happened: an operator must find out"
	case class == stores.ClassOutputs:
		return false, "messages of the handler's that cannot be published"
	case counts && s.Attempts >= l.Attempts:
		return false, fmt.Sprintf("%d of %d attempts failed", s.Attempts, l.Attempts)
	case !counts && s.Uncounted >= l.Uncounted:
		return false, fmt.Sprintf("%d of %d attempts were interrupted", s.Uncounted, l.Uncounted)
	case age >= l.Age:
		return false, fmt.Sprintf("the first failure was %s ago, at most %s are allowed", age.Round(time.Second), l.Age)
	}
	return true, ""
}

// Gone reports whether the budget was spent by an attempt that was counted before it began
// and has ended its process while it ran alone.
func (l Limits) Gone(seen stores.FailureState) bool {
	return seen.Presumed && !Shared(seen) && seen.Attempts >= l.Attempts
}

// Shared reports whether a process has ended, or runs, while the message ran in it beside
// other suspects: any of them may have ended it.
func Shared(seen stores.FailureState) bool {
	return seen.Presumed && seen.Class == stores.ClassInterrupted
}

// Patience says what to do about a codec or publisher that refuses a message which has
// failed for good, and may take it later: wait, give the message back as failed, so that a
// broker with a limit of deliveries takes it aside, or give up, for other brokers have none.
func (l Limits) Patience(age time.Duration) (wait, giveUp bool) {
	return age < l.Age, age/2 >= l.Age // which does not overflow
}

// Backoff says how long to wait after failed attempts: Min after the first, doubling with
// each, at most Max.
type Backoff struct{ Min, Max time.Duration }

// Pause is how long to wait after so many failures, with jitter.
func (b Backoff) Pause(failures int) time.Duration {
	p := b.Min
	for n := 1; n < failures && p < b.Max; n++ {
		if p > b.Max/2 { // so that it never overflows
			p = b.Max
			break
		}
		p *= 2
	}
	return pause.Jitter(p)
}
