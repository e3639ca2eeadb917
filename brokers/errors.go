package brokers

import "errors"

var (
	// ErrClosed: the broker, subscriber or publisher was closed.
	ErrClosed = errors.New("brokers: closed")
	// ErrFull: a bounded broker cannot accept more messages now. Nothing was stored; publish the
	// message again later.
	ErrFull = errors.New("brokers: broker is full")
	// ErrTooLarge: the message exceeds the broker's limit, and is refused until the limit is
	// raised.
	ErrTooLarge = errors.New("brokers: message too large")
	// ErrUnencodable: the message cannot be written in the broker's format, for example because of
	// the name of a metadata field. It is refused until it is changed.
	ErrUnencodable = errors.New("brokers: message cannot be encoded")
	// ErrUnavailable: the broker could not be reached. A message that was being published may or
	// may not be stored; publish it again.
	ErrUnavailable = errors.New("brokers: broker unavailable")
)
