package myproxy

import (
	"encoding/binary"
	"fmt"

	"github.com/millpond-go/millpond/internal/dbproxy"
)

// session follows one connection, packet by packet. A packet of the greatest length goes
// on in the next one, which is then not looked at. Those of the client are known by their
// number: only commands have 0.
type session struct {
	tracker

	handshake handshake
	greeted   bool // the server has spoken
	responded bool // the client has answered

	goesOn bool // the server's next packet continues its last
}

func newSession() dbproxy.Session {
	return &session{tracker: tracker{statements: make(map[uint32]statement)}}
}

func (*session) HeaderBytes() int { return headerBytes }

func (*session) RequestLength(header []byte) (int, error) { return packetLength(header), nil }
func (*session) ReplyLength(header []byte) (int, error)   { return packetLength(header), nil }

func packetLength(header []byte) int {
	return headerBytes + int(header[0]) + int(header[1])<<8 + int(header[2])<<16
}

func (s *session) Request(message []byte) (dbproxy.Request, error) {
	sequence, payload := message[3], message[headerBytes:]
	switch {
	case s.started && sequence == 0:
		return s.command(payload)
	case s.started: // the rest of a command, or what the server has asked for: a file, a password
		return dbproxy.Request{}, nil
	}
	setup := dbproxy.Request{Setup: true}
	if s.responded { // proofs of who it is
		return setup, nil
	}
	s.responded = true
	if err := s.handshake.response(payload); err != nil {
		return setup, err
	}
	s.deprecateEOF, s.cacheMetadata = s.handshake.deprecateEOF, s.handshake.cacheMetadata
	return setup, nil
}

func (s *session) Reply(message []byte) (dbproxy.Reply, error) {
	payload := message[headerBytes:]
	goesOn := s.goesOn
	s.goesOn = len(payload) == maxPacketBytes
	if goesOn || len(payload) == 0 {
		return dbproxy.Reply{}, nil
	}
	switch {
	case s.started:
		return s.packet(payload)
	case payload[0] == errPacket: // refused, and that was all
		return dbproxy.Reply{}, nil
	case s.greeted:
		s.started, s.transaction = payload[0] == okPacket, outside
		return dbproxy.Reply{}, nil
	}
	s.greeted = true
	id, err := s.handshake.greeting(payload)
	return dbproxy.Reply{ID: id}, err
}

// statement is a prepared statement.
type statement struct {
	sql string
	end ending
}

// lastPrepared is the id by which MariaDB knows the statement that was prepared last.
const lastPrepared = 1<<32 - 1

// statementOf returns the statement that a command with an id in it is about.
func (t *tracker) statementOf(payload []byte) (statement, error) {
	if len(payload) < 5 {
		return statement{}, errShort
	}
	id := binary.LittleEndian.Uint32(payload[1:])
	if known, ok := t.statements[id]; ok {
		return known, nil
	}
	if id == lastPrepared {
		return t.prepared, nil
	}
	return statement{}, fmt.Errorf("myproxy: statement %d was not prepared", id)
}
