// Package budget decides whether another attempt follows a failed one. It uses only plain values:
// what was spent, what the policy allows, and the class of the failure.
package budget

import (
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Limits are what a policy allows.
type Limits struct {
	Attempts  int           // failures that count
	Uncounted int           // interruptions that are not the handler's fault
	Age       time.Duration // after the first failure
}

// Spent is what the attempts of a message have spent.
type Spent struct{ Attempts, Uncounted int }

// Counts reports whether an attempt with this class spends the budget.
func Counts(class stores.Class) bool {
	return class != stores.ClassInterrupted && class != stores.ClassUnknown
}

// After returns what is spent after another attempt with this class. A suspect's attempt was
// already counted before it began.
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

// All returns the number of attempts.
func (s Spent) All() int { return s.Attempts + s.Uncounted }

// Again decides whether another attempt follows one with this class, which s already includes. If
// not, the reason is for people.
func (l Limits) Again(class stores.Class, s Spent, age time.Duration) (again bool, reason string) {
	counts := Counts(class)
	switch {
	case class == stores.ClassPermanent:
		return false, "a permanent error"
	case class == stores.ClassUnconfirmed:
		return false, "the effect may have happened: an operator must find out"
	case class == stores.ClassOutputs:
		return false, "the handler's messages cannot be published"
	case counts && s.Attempts >= l.Attempts:
		return false, fmt.Sprintf("%d of %d attempts failed", s.Attempts, l.Attempts)
	case !counts && s.Uncounted >= l.Uncounted:
		return false, fmt.Sprintf("%d of %d attempts were interrupted", s.Uncounted, l.Uncounted)
	case age >= l.Age:
		return false, fmt.Sprintf("the first failure was %s ago, at most %s are allowed", age.Round(time.Second), l.Age)
	}
	return true, ""
}

// Gone reports whether the budget was spent by an attempt that was counted before it began, ran
// alone, and ended its process.
func (l Limits) Gone(seen stores.FailureState) bool {
	return seen.Presumed && !Shared(seen) && seen.Attempts >= l.Attempts
}

// Shared reports whether the message was running beside other suspects when its process ended, or
// still is: any of them may have ended the process.
func Shared(seen stores.FailureState) bool {
	return seen.Presumed && seen.Class == stores.ClassInterrupted
}

// Patience says what to do while a codec or publisher refuses a message that has failed for good.
// First, wait. Then give the message back as failed, so that a broker with a delivery limit
// dead-letters it. Then give up, for brokers without a limit.
func (l Limits) Patience(age time.Duration) (wait, giveUp bool) {
	return age < l.Age, age/2 >= l.Age // age/2 cannot overflow
}

// Backoff sets the pauses after failed attempts: Min after the first, doubled with each, up to Max.
type Backoff struct{ Min, Max time.Duration }

// Pause returns the pause after this many failures, with jitter.
func (b Backoff) Pause(failures int) time.Duration {
	p := b.Min
	for n := 1; n < failures && p < b.Max; n++ {
		if p > b.Max/2 { // p*2 could overflow
			p = b.Max
			break
		}
		p *= 2
	}
	return pause.Jitter(p)
}
