package myproxy

import (
	"encoding/binary"
	"fmt"

	"github.com/millpond-go/millpond/internal/dbproxy"
)

// tracker follows the conversation after the connection was made: which answer belongs to
// which command, whose turn it is, and whether a transaction is open.
type tracker struct {
	started       bool // commands may come
	deprecateEOF  bool
	cacheMetadata bool

	statements  map[uint32]statement
	prepared    statement // last
	queue       []request // sent and not yet answered, oldest first
	transaction transaction
}

// transaction is what is known about the open transaction.
type transaction int

const (
	unknown transaction = iota // the last answer did not say
	outside
	inside
)

// request is a command that the server owes an answer to.
type request struct {
	command  byte
	text     statement
	fault    dbproxy.Fault
	answered bool // its commit was

	skip int  // packets to come before the next that says something
	rows bool // and after them there are rows
	last bool // and after them there is nothing
}

// command takes a command of the client.
func (t *tracker) command(payload []byte) (dbproxy.Request, error) {
	if len(payload) == 0 {
		return dbproxy.Request{}, errShort
	}
	r := request{command: payload[0]}
	var s dbproxy.Request
	var err error
	switch r.command {
	case quitCommand, longDataCommand:
		return s, nil
	case closeCommand:
		if len(payload) >= 5 {
			delete(t.statements, binary.LittleEndian.Uint32(payload[1:]))
		}
		return s, nil
	case queryCommand, prepareCommand:
		sql := string(payload[1:])
		r.text = statement{sql: sql, end: endingOf(sql)}
		if r.command == prepareCommand {
			t.prepared = r.text
		}
	case executeCommand, bulkExecuteCommand:
		r.text, err = t.statementOf(payload)
	case fieldListCommand:
		r.rows = true
	case changeUserCommand, resetConnCommand:
		r.text.end.rollback = true
	case initDBCommand, statisticsCommand, processKillCommand, debugCommand, pingCommand,
		resetStmtCommand, setOptionCommand:
	default:
		err = fmt.Errorf("myproxy: command %#02x is not followed", r.command)
	}
	if err != nil {
		return s, err
	}
	s.Turn = len(t.queue) == 0
	if r.command != prepareCommand && r.text.sql != "" {
		s.Execute, s.SQL, s.Commit = true, r.text.sql, r.text.end.commit
	}
	t.queue = append(t.queue, r)
	return s, nil
}

// Inject gives a fault to the command that was sent last.
func (t *tracker) Inject(f dbproxy.Fault) { t.queue[len(t.queue)-1].fault = f }

// packet takes a packet of the server, which is not empty.
func (t *tracker) packet(payload []byte) (dbproxy.Reply, error) {
	if len(t.queue) == 0 {
		return dbproxy.Reply{}, nil // the server says goodbye
	}
	r := &t.queue[0]
	switch {
	case payload[0] == errPacket && r.skip == 0:
		return t.failed(r, payload), nil
	case r.skip > 0:
		if r.skip--; r.skip == 0 && r.last {
			t.done()
		}
		return dbproxy.Reply{}, nil
	case r.rows:
		return t.row(r, payload)
	}
	switch r.command {
	case statisticsCommand:
		t.done()
		return dbproxy.Reply{}, nil
	case prepareCommand:
		return dbproxy.Reply{}, t.prepares(r, payload)
	case changeUserCommand:
		if payload[0] != okPacket {
			return dbproxy.Reply{}, nil // who are you?
		}
	}
	switch payload[0] {
	case okPacket:
		status, err := okStatus(payload)
		return t.succeeded(r, status), err
	case eofPacket:
		status, err := eofStatus(payload)
		return t.succeeded(r, status), err
	case localFile:
		return dbproxy.Reply{}, nil // the client sends it, then the server answers
	}
	return dbproxy.Reply{}, t.columns(r, payload)
}

// columns takes the beginning of a result: how many columns it has.
func (t *tracker) columns(r *request, payload []byte) error {
	n, rest, err := integer(payload)
	if err != nil {
		return err
	}
	if t.cacheMetadata && len(rest) > 0 && rest[0] == 0 {
		n = 0 // the client knows them
	}
	r.skip, r.rows = t.definitions(n), true
	return nil
}

// definitions returns how many packets the definitions of n columns take.
func (t *tracker) definitions(n uint64) int {
	if t.deprecateEOF {
		return int(n) // #nosec G115 -- a few thousand at most
	}
	return int(n) + 1 // #nosec G115
}

// row takes a row, or what follows the last one.
func (t *tracker) row(r *request, payload []byte) (dbproxy.Reply, error) {
	if payload[0] != eofPacket || len(payload) == maxPacketBytes {
		return dbproxy.Reply{}, nil
	}
	r.rows = false
	status, err := eofStatus(payload)
	if t.deprecateEOF {
		status, err = okStatus(payload)
	}
	return t.succeeded(r, status), err
}

// prepares takes the answer to the preparing of a statement.
func (t *tracker) prepares(r *request, payload []byte) error {
	if len(payload) < 9 {
		return errShort
	}
	t.statements[binary.LittleEndian.Uint32(payload[1:])] = r.text
	for _, n := range []uint16{binary.LittleEndian.Uint16(payload[5:]), binary.LittleEndian.Uint16(payload[7:])} {
		if n > 0 {
			r.skip += t.definitions(uint64(n))
		}
	}
	r.last = true
	if r.skip == 0 {
		t.done()
	}
	return nil
}

// succeeded takes the end of a result.
func (t *tracker) succeeded(r *request, status uint16) dbproxy.Reply {
	before := t.transaction
	t.transaction = outside
	if status&inTransaction != 0 {
		t.transaction = inside
	}
	final := status&moreResults == 0
	ended := before == inside && t.transaction == outside
	end := r.text.end
	var reply dbproxy.Reply
	switch {
	case end.commit && !r.answered && (ended || final):
		r.answered = true
		reply.Commit, reply.Fault = true, r.fault
		// A lone COMMIT may have had nothing to commit. What opens a transaction and
		// commits it within one statement tells nobody about it.
		reply.Committed = before != outside || !end.alone
	case end.rollback && final:
		reply.RolledBack = before != outside
	case ended:
		reply.Committed = true // by itself, as DDL does
	}
	if final {
		t.done()
	}
	return reply
}

// failed takes an error, which ends a command whatever was still to come.
func (t *tracker) failed(r *request, payload []byte) dbproxy.Reply {
	t.transaction = unknown
	if len(payload) >= 3 && binary.LittleEndian.Uint16(payload[1:]) == deadlockError {
		t.transaction = outside
	}
	var reply dbproxy.Reply
	if r.text.end.commit && !r.answered {
		reply.Commit, reply.Fault = true, r.fault
	}
	t.done()
	return reply
}

func (t *tracker) done() { t.queue = t.queue[1:] }
