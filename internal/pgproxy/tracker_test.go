package pgproxy

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// conversation feeds messages to a tracker that is ready for the client.
type conversation struct {
	t       *testing.T
	tracker *tracker
	turns   int
	commits int
}

func newConversation(t *testing.T) *conversation {
	t.Helper()
	c := &conversation{t: t, tracker: newTracker()}
	c.server(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return c
}

func (c *conversation) client(messages ...pgproto3.FrontendMessage) {
	c.t.Helper()
	for _, m := range messages {
		b, err := m.Encode(nil)
		if err != nil {
			c.t.Fatal(err)
		}
		s, err := c.tracker.client(b[0], b[headerBytes:])
		if err != nil {
			c.t.Fatal(err)
		}
		if s.Turn {
			c.turns++
		}
	}
}

func (c *conversation) server(messages ...pgproto3.BackendMessage) {
	c.t.Helper()
	for _, m := range messages {
		b, err := m.Encode(nil)
		if err != nil {
			c.t.Fatal(err)
		}
		r, err := c.tracker.server(b[0], b[headerBytes:])
		if err != nil {
			c.t.Fatal(err)
		}
		if r.Commit {
			c.commits++
		}
	}
}

func (c *conversation) expect(turns, commits int) {
	c.t.Helper()
	if c.turns != turns || c.commits != commits {
		c.t.Errorf("%d turns and %d replies to COMMIT, want %d and %d", c.turns, c.commits, turns, commits)
	}
}

func execution(sql string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{
		&pgproto3.Parse{Name: "s", Query: sql},
		&pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s"},
		&pgproto3.Execute{Portal: "p"},
	}
}

func complete(tag string) []pgproto3.BackendMessage {
	return []pgproto3.BackendMessage{
		&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte(tag)},
	}
}

var (
	unitEnd = &pgproto3.Sync{}
	ready   = &pgproto3.ReadyForQuery{TxStatus: 'I'}
)

// The server answers the first unit while the client is still sending the third.
func TestTurnOfOverlappingUnits(t *testing.T) {
	c := newConversation(t)
	c.client(execution("SELECT 1")...)
	c.client(unitEnd)
	c.client(execution("SELECT 2")...)
	c.client(unitEnd)
	c.server(complete("SELECT 1")...)
	c.server(ready)
	c.client(execution("SELECT 3")...)
	c.client(unitEnd)
	c.server(complete("SELECT 1")...)
	c.server(ready)
	c.server(complete("SELECT 1")...)
	c.expect(1, 0)
	c.server(ready)
	c.client(&pgproto3.Query{String: "SELECT 4"})
	c.expect(2, 0)
}

// What the server says unasked gives nobody the turn.
func TestTurnAndNotices(t *testing.T) {
	c := newConversation(t)
	c.client(&pgproto3.Query{String: "SELECT 1"})
	c.server(&pgproto3.NoticeResponse{}, &pgproto3.ParameterStatus{}, &pgproto3.NotificationResponse{})
	c.client(execution("SELECT 2")...)
	c.client(&pgproto3.Flush{})
	c.expect(1, 0)
	c.server(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, ready)
	c.client(unitEnd)
	c.client(&pgproto3.Terminate{})
	c.expect(2, 0)
}

func TestCommitAfterErrorHasNoReply(t *testing.T) {
	c := newConversation(t)
	c.client(execution("INSERT")...)
	c.client(execution("commit")...)
	c.client(unitEnd)
	c.client(execution("commit")...)
	c.client(unitEnd)
	c.server(&pgproto3.ErrorResponse{Code: "23505"}, ready)
	c.expect(1, 0)
	c.server(complete("ROLLBACK")...)
	c.expect(1, 1)
}

func TestCommitText(t *testing.T) {
	for sql, want := range map[string]bool{
		"commit": true, " COMMIT ;\n": true, "end": true, "END TRANSACTION": true, "commit work and no chain": true,
		"insert into t values (1); commit": true, "begin; commit;": true,
		"COMMIT PREPARED 'x'": false, "commits": false, "select 'commit'": false, "rollback": false,
		"do $$ begin perform 1; end; $$": false, "begin; commit; select 1": false, "": false,
	} {
		if got := commitText.MatchString(sql); got != want {
			t.Errorf("%q is a commit: %t", strings.TrimSpace(sql), got)
		}
	}
}
