package stores

import "errors"

// Status of a message in the inbox. The numbers are those of the tables.
type Status uint8

const (
	// StatusProcessing is written by stores that need a mark on claimed rows.
	StatusProcessing Status = iota + 1
	// StatusCompleted: the handler's effects are committed.
	StatusCompleted
	// StatusPending: an attempt has failed, and another one will be made.
	StatusPending
	// StatusFailed: no further attempt will be made by itself. These are the dead
	// letters; an operator may retry them.
	StatusFailed
	// StatusDiscarded: an operator has decided that no attempt shall be made.
	StatusDiscarded
)

var statusNames = [...]string{
	StatusProcessing: "processing", StatusCompleted: "completed", StatusPending: "pending",
	StatusFailed: "failed", StatusDiscarded: "discarded",
}

// String returns the status as one lower-case word.
func (s Status) String() string { return name(statusNames[:], uint8(s)) }

// ParseStatus returns the status of a name. It reports false for others.
func ParseStatus(s string) (Status, bool) {
	i, ok := parseName(statusNames[:], s)
	return Status(i), ok
}

// Placement says who keeps a pending message until its next attempt.
type Placement uint8

const (
	// PlacementParked: the store keeps it, a retry worker runs it, and its
	// delivery was acked.
	PlacementParked Placement = iota + 1
	// PlacementRedelivered: the broker keeps it and delivers it again. The row has
	// only the count.
	PlacementRedelivered
)

var placementNames = [...]string{PlacementParked: "parked", PlacementRedelivered: "redelivered"}

// String returns the placement as one lower-case word.
func (p Placement) String() string { return name(placementNames[:], uint8(p)) }

// UnmarshalText implements encoding.TextUnmarshaler. It takes what String returns.
func (p *Placement) UnmarshalText(text []byte) error {
	for placement, known := range placementNames {
		if known != "" && known == string(text) {
			*p = Placement(placement)
			return nil
		}
	}
	return errors.New("use parked or redelivered")
}

// ContentState says what is kept of a failed message, and whether a retry worker
// can run it from that.
type ContentState uint8

const (
	// ContentNone: nothing; the broker has the message.
	ContentNone ContentState = iota
	// ContentKept: all of it. Only such a message can be parked.
	ContentKept
	// ContentTooLarge: nothing, because it is over the limit for kept content.
	ContentTooLarge
	// ContentOff: nothing, by configuration.
	ContentOff
	// ContentOneWay: something for people to read that its codec cannot turn back
	// into the message, such as a redacted copy.
	ContentOneWay
	// ContentRefused: nothing, because the codec has refused it for good.
	ContentRefused
)

var contentNames = [...]string{
	ContentNone: "none", ContentKept: "kept", ContentTooLarge: "too_large", ContentOff: "off", ContentOneWay: "one_way",
	ContentRefused: "refused",
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
