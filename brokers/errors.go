package brokers

import "errors"

var (
	// ErrClosed: the broker, subscriber or publisher was closed.
	ErrClosed = errors.New("brokers: closed")
	// ErrFull: a bounded broker cannot take more messages now. Nothing of the
	// refused message was stored; publish it again later.
	ErrFull = errors.New("brokers: broker is full")
	// ErrTooLarge: the message is larger than the broker takes. Trying again cannot help
	// until somebody raises the limit.
	ErrTooLarge = errors.New("brokers: message too large")
	// ErrUnencodable: the message cannot be written in the broker's format, because of the
	// name of a metadata field for example. It is refused each time, until it is changed.
	ErrUnencodable = errors.New("brokers: message cannot be encoded")
	// ErrUnavailable: the broker could not be reached. What was being published may
	// or may not have been taken; publish it again.
	ErrUnavailable = errors.New("brokers: broker unavailable")
)
