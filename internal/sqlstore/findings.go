package sqlstore

import (
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Waits is how many messages or outputs wait, and the age of the oldest. With More, N is a lower
// bound.
type Waits struct {
	N    int64
	Age  time.Duration
	More bool
}

// Plus adds more of them, with their age in seconds.
func (w Waits) Plus(n int, age time.Duration, more bool) Waits {
	return Waits{N: w.N + int64(n), Age: max(w.Age, age.Round(time.Second)), More: w.More || more}
}

// String returns the number.
func (w Waits) String() string {
	if w.More {
		return fmt.Sprintf("%d or more", w.N)
	}
	return fmt.Sprint(w.N)
}

// maxClockDifference is more than a round trip and synchronized clocks explain.
const maxClockDifference = 5 * time.Second

// FindClocks compares the server's time with this machine's times before and after the request.
func FindClocks(add Adder, before, after, theirs time.Time) {
	ahead := max(before.Sub(theirs), theirs.Sub(after))
	if ahead > maxClockDifference {
		add(stores.SeverityWarning, fmt.Sprintf("the clocks of this machine and of the server differ by %v", ahead.Round(time.Second)),
			"times of messages that this machine writes cannot be compared with those of the store", "synchronize both, for example with chrony or timesyncd")
	}
}

// FindOverdue reports due retries that are overdue by more than they may be.
func FindOverdue(add Adder, due Waits, may time.Duration) {
	if due.N > 0 && due.Age >= may {
		add(stores.SeverityWarning, fmt.Sprintf("%v retries are due, the oldest since %v", due, due.Age), "no retry worker takes them, or too few do",
			"start a process of the service without retry_worker.off, or raise retry_worker.concurrency")
	}
}

// FindWaiting reports messages that wait: pending, failed or quarantined.
func FindWaiting(add Adder, status string, w Waits) {
	one, more, fix := "message is pending, and failed first", "messages are pending, the first failed", "millpond cause ls"
	switch status {
	case stores.StatusFailed.String():
		one, more, fix = "message has failed for good,", "messages have failed for good, the first", "millpond cause ls, and millpond msg retry, resolve or discard"
	case Quarantined:
		one, more, fix = "message is held in quarantine, seen first", "messages are held in quarantine, the first", "millpond quarantine ls, and release or reject"
	}
	if w.N == 1 {
		more = one
	}
	if w.N > 0 {
		add(stores.SeverityNote, fmt.Sprintf("%v %s %v ago", w, more, w.Age), "a retry worker or an operator has to act", fix)
	}
}

// Quarantined is the status of quarantined messages in counts.
const Quarantined = "quarantined"

// FindOutbox reports outputs that wait longer than they may, buckets without an owner, and dead
// letters.
func FindOutbox(add Adder, pending Waits, may time.Duration, owned int64, failed Waits) {
	if pending.N > 0 && pending.Age >= may {
		add(stores.SeverityWarning, fmt.Sprintf("%v outputs wait to be published, the oldest since %v", pending, pending.Age), "a relay is missing, too slow, or refused by its destination",
			"run a relay for this store, and look at its log")
	}
	if pending.N > 0 && owned < stores.OutboxBuckets {
		add(stores.SeverityWarning, fmt.Sprintf("%d of the %d buckets of the outbox have no owner", stores.OutboxBuckets-owned, stores.OutboxBuckets), "nobody publishes the outputs in them",
			"run a relay for this store")
	}
	if failed.N > 0 {
		add(stores.SeverityNote, fmt.Sprintf("%v outputs were refused for good, the first %v ago", failed, failed.Age), "those that block their order key keep others waiting", "")
	}
}
