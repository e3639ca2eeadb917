package pgproxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	headerBytes     = 5 // type and length
	maxStartupBytes = 10_000
	maxMessageBytes = 1 << 30 // the server's own limit
	bufferBytes     = 64 << 10
)

// Types of messages that the proxy looks into. A letter may mean different things in
// the two directions.
const (
	parseMsg     = 'P'
	bindMsg      = 'B'
	executeMsg   = 'E'
	queryMsg     = 'Q'
	syncMsg      = 'S'
	flushMsg     = 'H'
	functionMsg  = 'F'
	terminateMsg = 'X'

	commandCompleteMsg = 'C'
	emptyQueryMsg      = 'I'
	portalSuspendedMsg = 's'
	errorMsg           = 'E'
	readyMsg           = 'Z'
	backendKeyMsg      = 'K'
	noticeMsg          = 'N'
	notificationMsg    = 'A'
	parameterMsg       = 'S'
)

// readMessage appends the next message to buf. The body is a part of the result.
func readMessage(r *bufio.Reader, buf []byte) (kind byte, body, extended []byte, err error) {
	header, err := r.Peek(headerBytes)
	if err != nil {
		return 0, nil, buf, err
	}
	kind = header[0]
	length := binary.BigEndian.Uint32(header[1:])
	if length < 4 || length > maxMessageBytes {
		return 0, nil, buf, fmt.Errorf("pgproxy: message %q of length %d", kind, length)
	}
	buf, err = readN(r, buf, 1+int(length))
	if err != nil {
		return 0, nil, buf, err
	}
	return kind, buf[len(buf)-int(length)+4:], buf, nil
}

// readStartup reads a message of the time before the first typed one: its length and
// a body that begins with a code.
func readStartup(r *bufio.Reader) (raw, body []byte, err error) {
	header, err := r.Peek(4)
	if err != nil {
		return nil, nil, err
	}
	length := binary.BigEndian.Uint32(header)
	if length < 8 || length > maxStartupBytes {
		return nil, nil, fmt.Errorf("pgproxy: startup message of length %d", length)
	}
	raw, err = readN(r, nil, int(length))
	if err != nil {
		return nil, nil, err
	}
	return raw, raw[4:], nil
}

func readN(r *bufio.Reader, buf []byte, n int) ([]byte, error) {
	start := len(buf)
	buf = append(buf, make([]byte, n)...)
	if _, err := io.ReadFull(r, buf[start:]); err != nil {
		return buf[:start], err
	}
	return buf, nil
}

// another reports whether a whole message can be read without waiting.
func another(r *bufio.Reader) bool {
	if r.Buffered() < headerBytes {
		return false
	}
	header, err := r.Peek(headerBytes)
	return err == nil && r.Buffered() > int(binary.BigEndian.Uint32(header[1:]))
}
