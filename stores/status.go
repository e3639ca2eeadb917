package stores

import "errors"

// Status is the state of a message in the inbox. The tables have the same numbers.
type Status uint8

const (
	// StatusProcessing: claimed, and not completed before COMMIT. Only some stores write it.
	StatusProcessing Status = iota + 1
	// StatusCompleted: the handler's effects are committed.
	StatusCompleted
	// StatusPending: an attempt has failed, and another one will be made.
	StatusPending
	// StatusFailed: the message has failed for good, as a dead letter. An operator may
	// retry it.
	StatusFailed
	// StatusDiscarded: an operator decided that there is no further attempt.
	StatusDiscarded
)

var statusNames = [...]string{
	StatusProcessing: "processing", StatusCompleted: "completed", StatusPending: "pending",
	StatusFailed: "failed", StatusDiscarded: "discarded",
}

// String returns the status as one lower-case word.
func (s Status) String() string { return name(statusNames[:], uint8(s)) }

// ParseStatus returns the status whose String is s, and false if there is none.
func ParseStatus(s string) (Status, bool) {
	i, ok := parseName(statusNames[:], s)
	return Status(i), ok
}

// Placement says who keeps a pending message until its next attempt.
type Placement uint8

const (
	// PlacementParked: the store keeps the message, its delivery was acked, and a retry
	// worker runs it.
	PlacementParked Placement = iota + 1
	// PlacementRedelivered: the broker keeps the message, and its redelivery makes the next
	// attempt. The row keeps only the count.
	PlacementRedelivered
)

var placementNames = [...]string{PlacementParked: "parked", PlacementRedelivered: "redelivered"}

// String returns the placement as one lower-case word.
func (p Placement) String() string { return name(placementNames[:], uint8(p)) }

// UnmarshalText implements encoding.TextUnmarshaler. It takes what String returns.
func (p *Placement) UnmarshalText(text []byte) error {
	placement, ok := parseName(placementNames[:], string(text))
	if !ok {
		return errors.New("use parked or redelivered")
	}
	*p = Placement(placement)
	return nil
}

// ContentState says what is kept of a failed message. Retry workers run only ContentKept.
type ContentState uint8

const (
	// ContentNone: nothing is kept; the broker has the message.
	ContentNone ContentState = iota
	// ContentKept: all of the message is kept. Only such a message can be parked.
	ContentKept
	// ContentTooLarge: nothing is kept, because the message exceeds the limit.
	ContentTooLarge
	// ContentOff: nothing is kept, by configuration.
	ContentOff
	// ContentOneWay: the kept content is for people to read, such as a redacted copy. The codec
	// cannot restore the message from it.
	ContentOneWay
	// ContentRefused: nothing is kept, because the codec refused the message for good.
	ContentRefused
	// ContentErased: nothing is kept, because an operator has erased it. The message never runs
	// again.
	ContentErased
)

var contentNames = [...]string{
	ContentNone: "none", ContentKept: "kept", ContentTooLarge: "too_large", ContentOff: "off", ContentOneWay: "one_way",
	ContentRefused: "refused", ContentErased: "erased",
}

// String returns the state as one lower-case word.
func (c ContentState) String() string { return name(contentNames[:], uint8(c)) }

func name(names []string, i uint8) string {
	if int(i) < len(names) && names[i] != "" {
		return names[i]
	}
	return "unknown"
}

func parseName(names []string, s string) (uint8, bool) {
	for i, name := range names {
		if name == s && s != "" {
			return uint8(i), true
		}
	}
	return 0, false
}
