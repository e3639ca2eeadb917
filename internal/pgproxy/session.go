package pgproxy

import (
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millpond-go/millpond/internal/dbproxy"
)

// session reads the messages of one connection for its tracker.
type session struct {
	*tracker

	typed bool // the client has sent what comes before the first typed message
}

func newSession() dbproxy.Session { return &session{tracker: newTracker()} }

func (*session) HeaderBytes() int { return headerBytes }

func (s *session) RequestLength(header []byte) (int, error) {
	if s.typed {
		return s.ReplyLength(header)
	}
	length := binary.BigEndian.Uint32(header)
	if length < 8 || length > maxStartupBytes {
		return 0, fmt.Errorf("pgproxy: startup message of length %d", length)
	}
	return int(length), nil
}

func (*session) ReplyLength(header []byte) (int, error) {
	length := binary.BigEndian.Uint32(header[1:])
	if length < 4 || length > maxMessageBytes {
		return 0, fmt.Errorf("pgproxy: message %q of length %d", header[0], length)
	}
	return 1 + int(length), nil
}

func (s *session) Request(message []byte) (dbproxy.Request, error) {
	if s.typed {
		return s.client(message[0], message[headerBytes:])
	}
	body := message[4:]
	if (&pgproto3.SSLRequest{}).Decode(body) == nil || (&pgproto3.GSSEncRequest{}).Decode(body) == nil {
		return dbproxy.Request{Answer: []byte{'N'}}, nil // not here: nothing could be followed
	}
	s.typed = true
	// A cancellation is the whole conversation: the server closes it.
	last := (&pgproto3.CancelRequest{}).Decode(body) == nil
	return dbproxy.Request{Setup: true, Last: last}, nil
}

func (s *session) Reply(message []byte) (dbproxy.Reply, error) {
	return s.server(message[0], message[headerBytes:])
}
