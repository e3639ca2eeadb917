package myproxy

import (
	"encoding/binary"
	"testing"
)

// conversation feeds packets to a session.
type conversation struct {
	t       *testing.T
	session *session
	turns   int
	commits int // replies to COMMIT
}

// newConversation returns one in which commands may come, of a client that wants EOF
// packets or does not.
func newConversation(t *testing.T, wantsEOF bool) *conversation {
	t.Helper()
	s, ok := newSession().(*session)
	if !ok {
		t.Fatal("it is another session")
	}
	c := &conversation{t: t, session: s}
	capabilities := uint32(mysqlCapability | deprecateEOF | sslCapability)
	greeting := append([]byte("\x0a9.7.4\x00"), make([]byte, 44)...)
	binary.LittleEndian.PutUint32(greeting[7:], 4711)
	binary.LittleEndian.PutUint16(greeting[20:], uint16(capabilities))
	binary.LittleEndian.PutUint16(greeting[25:], uint16(capabilities>>16))
	if id := c.reply(greeting); id != 4711 {
		t.Errorf("the id is %d", id)
	}
	if lower := binary.LittleEndian.Uint16(greeting[20:]); lower != mysqlCapability {
		t.Errorf("the client is offered %#x", lower)
	}
	if wantsEOF {
		capabilities &^= deprecateEOF
	}
	response := make([]byte, 40)
	binary.LittleEndian.PutUint32(response, capabilities)
	c.request(1, response)
	c.reply([]byte{eofPacket, 'x'}) // another method, please
	c.request(3, []byte("password"))
	c.reply([]byte{moreAuthPacket, 3})
	c.reply([]byte{okPacket, 0, 0, 2, 0, 0, 0})
	c.expect(0, 0)
	return c
}

func packet(sequence byte, payload []byte) []byte {
	n := len(payload)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, payload...)
}

func (c *conversation) request(sequence byte, payload []byte) {
	c.t.Helper()
	r, err := c.session.Request(packet(sequence, payload))
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Turn {
		c.turns++
	}
}

func (c *conversation) query(sql string) {
	c.t.Helper()
	c.request(0, append([]byte{queryCommand}, sql...))
}

// reply changes the payload when the session does.
func (c *conversation) reply(payload []byte) uint32 {
	c.t.Helper()
	message := packet(1, payload)
	r, err := c.session.Reply(message)
	if err != nil {
		c.t.Fatal(err)
	}
	copy(payload, message[headerBytes:])
	if r.Commit {
		c.commits++
	}
	return r.ID
}

func (c *conversation) replies(payloads ...[]byte) {
	c.t.Helper()
	for _, payload := range payloads {
		c.reply(payload)
	}
}

func (c *conversation) expect(turns, commits int) {
	c.t.Helper()
	if c.turns != turns || c.commits != commits {
		c.t.Errorf("%d turns and %d replies to COMMIT, want %d and %d", c.turns, c.commits, turns, commits)
	}
}

func ok(status byte) []byte   { return []byte{okPacket, 0xfc, 1, 0, 0, status, 0, 0, 0} }
func eof(status byte) []byte  { return []byte{eofPacket, 0, 0, status, 0} }
func last(status byte) []byte { return []byte{eofPacket, 0, 0, status, 0, 0, 0} }

var (
	column = []byte("\x03def…")
	row    = []byte("\x01x")
	failed = []byte{errPacket, 0x26, 0x04, '#'} // 1062
)

// The server answers the first command while the client is still sending the third.
func TestTurnOfOverlappingCommands(t *testing.T) {
	c := newConversation(t, false)
	c.query("BEGIN")
	c.query("INSERT")
	c.reply(ok(inTransaction))
	c.query("COMMIT")
	c.replies(ok(inTransaction), ok(0))
	c.expect(1, 1)
	c.query("SELECT 1")
	c.expect(2, 1)
}

// A result ends as client and server have agreed upon.
func TestEndOfResults(t *testing.T) {
	for _, wantsEOF := range []bool{false, true} {
		c := newConversation(t, wantsEOF)
		c.query("SELECT 1, 2; SELECT 3; COMMIT")
		if wantsEOF {
			c.replies([]byte{2}, column, column, eof(0), row, eof(moreResults), []byte{1}, column, eof(0), eof(moreResults))
		} else {
			c.replies([]byte{2}, column, column, row, last(moreResults), []byte{1}, column, last(moreResults))
		}
		c.query("SELECT 4") // before the end
		c.expect(1, 0)
		c.reply(ok(0))
		c.expect(1, 1)
		if wantsEOF {
			c.replies([]byte{1}, column, eof(0), row, eof(0))
		} else {
			c.replies([]byte{1}, column, row, last(0))
		}
		c.query("SELECT 5")
		c.expect(2, 1)
		c.replies([]byte{1}, column)
		if wantsEOF {
			c.reply(eof(0))
		}
		c.replies(row, failed)
		c.query("SELECT 6")
		c.expect(3, 1)
	}
}

func TestPrepare(t *testing.T) {
	for _, wantsEOF := range []bool{false, true} {
		c := newConversation(t, wantsEOF)
		c.request(0, []byte("\x16COMMIT"))
		c.reply([]byte{okPacket, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		c.request(0, []byte("\x16SELECT ?"))
		c.reply([]byte{okPacket, 10, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0})
		definitions := [][]byte{column, column, column}
		if wantsEOF {
			definitions = [][]byte{column, column, eof(0), column, eof(0)}
		}
		c.replies(definitions...)
		c.expect(2, 0)
		c.request(0, []byte{longDataCommand, 10, 0, 0, 0, 0, 0, 'x'})
		c.request(0, []byte{executeCommand, 9, 0, 0, 0, 0, 1, 0, 0, 0})
		c.request(0, []byte{closeCommand, 9, 0, 0, 0})
		c.request(0, []byte{executeCommand, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0})
		c.replies(ok(0), failed)
		c.expect(3, 1)
		c.request(0, []byte{quitCommand})
		c.expect(3, 1)
	}
}

// MariaDB leaves out the definitions that the client has.
func TestCachedMetadata(t *testing.T) {
	c := newConversation(t, false)
	c.session.cacheMetadata = true
	c.query("SELECT 1")
	c.replies([]byte{1, 1}, column, row, last(0))
	c.query("SELECT 1")
	c.replies([]byte{1, 0}, row, last(0))
	c.query("SELECT 1")
	c.replies([]byte{1, 0}, last(0)) // no row either
	c.query("SELECT 1")
	c.expect(4, 0)
}

// The server asks for a file, which is no command.
func TestLocalFile(t *testing.T) {
	c := newConversation(t, false)
	c.query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t")
	c.reply([]byte{localFile, 'x'})
	c.request(2, []byte("\x03commit"))
	c.request(3, nil)
	c.expect(1, 0)
	c.reply(ok(0))
	c.query("SELECT 1")
	c.expect(2, 0)
}

// What the connection is reset from is not committed.
func TestReset(t *testing.T) {
	c := newConversation(t, false)
	c.query("BEGIN")
	c.reply(ok(inTransaction))
	c.request(0, []byte{resetConnCommand})
	if r, err := c.session.Reply(packet(1, ok(0))); err != nil || r.Committed || !r.RolledBack {
		t.Errorf("%+v (%v)", r, err)
	}
	c.replies([]byte{errPacket, 0x1d, 0x04, '#'}) // shut down while nobody asks
	c.query("SELECT 1")
	c.expect(3, 0)
}

func TestWhatIsNotFollowed(t *testing.T) {
	c := newConversation(t, false)
	if _, err := c.session.Request(packet(0, []byte{0x12, 0, 0, 0, 0})); err == nil {
		t.Error("replication was followed")
	}
	if _, err := c.session.Request(packet(0, []byte{executeCommand, 1, 0, 0, 0})); err == nil {
		t.Error("a statement was run that was not prepared")
	}
}
