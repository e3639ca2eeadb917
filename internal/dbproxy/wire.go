package dbproxy

import (
	"bufio"
	"fmt"
	"io"
)

const bufferBytes = 64 << 10

// reader reads messages of one direction.
type reader struct {
	*bufio.Reader

	header int // bytes that tell the length
	length func(header []byte) (int, error)
}

func newReader(r io.Reader, header int, length func([]byte) (int, error)) *reader {
	return &reader{bufio.NewReaderSize(r, bufferBytes), header, length}
}

// message appends the next message to buf.
func (r *reader) message(buf []byte) ([]byte, error) {
	header, err := r.Peek(r.header)
	if err != nil {
		return buf, err
	}
	length, err := r.length(header)
	if err == nil && length < r.header {
		err = fmt.Errorf("dbproxy: a message of length %d", length)
	}
	if err != nil {
		return buf, err
	}
	start := len(buf)
	buf = append(buf, make([]byte, length)...)
	if _, err := io.ReadFull(r, buf[start:]); err != nil {
		return buf[:start], err
	}
	return buf, nil
}

// another reports whether a whole message can be read without waiting.
func (r *reader) another() bool {
	if r.Buffered() < r.header {
		return false
	}
	header, err := r.Peek(r.header)
	if err != nil {
		return false
	}
	length, err := r.length(header)
	return err != nil || r.Buffered() >= length
}
