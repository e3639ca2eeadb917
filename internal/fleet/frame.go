package fleet

import "time"

// toWorker is a frame from the parent; one field is set.
type toWorker struct {
	Hello   *hello
	Deliver *deliver
	Proceed *proceed
}

// hello is the first frame that a process gets.
type hello struct {
	Worker   int
	Start    int // which process of this worker, from 1
	InFlight int
	Points   []string // worth announcing
}

type deliver struct {
	ID      uint64 // of the delivery
	Message Message
	Number  int // of the message, in the order of publishing
	Count   int
	Time    time.Time
}

// proceed answers an announcement.
type proceed struct {
	ID     uint64
	Disarm string // a point that is not worth announcing any more
}

// toParent is a frame from a worker; one field is set.
type toParent struct {
	Ready    bool // the worker has subscribed
	Settle   *settle
	Announce *announce
}

type settle struct {
	ID     uint64
	Ack    bool
	After  time.Duration // of a nack
	Failed bool          // of a nack
}

type announce struct {
	ID    uint64
	Point string
}
