package pgproxy

import (
	"regexp"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millpond-go/millpond/internal/dbproxy"
)

// tracker follows the conversation on one connection: which statement an execution
// runs, which reply belongs to it, and whose turn it is.
type tracker struct {
	started    bool              // the server was ready once
	answered   bool              // it is the client's turn
	flushed    bool              // the client asked for replies without a Sync
	statements map[string]string // SQL by the name of the prepared statement
	portals    map[string]string // SQL by the name of the portal
	queue      []request         // sent and not yet answered, oldest first
}

// request is what the server answers with one reply, or, if it ends a unit, with
// ReadyForQuery after everything else.
type request struct {
	ends   bool // a simple query, a Sync or a function call
	commit bool
	fault  dbproxy.Fault
}

func newTracker() *tracker {
	return &tracker{statements: make(map[string]string), portals: make(map[string]string)}
}

// commitText matches a COMMIT that stands alone or is the last of several statements.
// END counts alone only: function bodies end with it as well.
var commitText = regexp.MustCompile(
	`(?i)^\s*(commit|end)(\s+(work|transaction))?(\s+and\s+(no\s+)?chain)?\s*;?\s*$` +
		`|;\s*commit(\s+(work|transaction))?(\s+and\s+(no\s+)?chain)?\s*;?\s*$`)

// client takes a message of the client.
func (t *tracker) client(kind byte, body []byte) (dbproxy.Request, error) {
	s := dbproxy.Request{Setup: !t.started}
	if kind != terminateMsg && t.started && t.answered {
		t.answered = false
		s.Turn = true
	}
	switch kind {
	case parseMsg:
		var m pgproto3.Parse
		if err := m.Decode(body); err != nil {
			return s, err
		}
		t.statements[m.Name] = m.Query
	case bindMsg:
		var m pgproto3.Bind
		if err := m.Decode(body); err != nil {
			return s, err
		}
		t.portals[m.DestinationPortal] = t.statements[m.PreparedStatement]
	case executeMsg:
		var m pgproto3.Execute
		if err := m.Decode(body); err != nil {
			return s, err
		}
		s.Execute, s.SQL = true, t.portals[m.Portal]
	case queryMsg:
		var m pgproto3.Query
		if err := m.Decode(body); err != nil {
			return s, err
		}
		s.Execute, s.SQL = true, m.String
	case flushMsg:
		t.flushed = true
	}
	s.Commit = s.Execute && commitText.MatchString(s.SQL)
	switch kind {
	case executeMsg:
		t.queue = append(t.queue, request{commit: s.Commit})
	case queryMsg, syncMsg, functionMsg:
		t.queue = append(t.queue, request{ends: true, commit: s.Commit})
	}
	return s, nil
}

// Inject gives a fault to the request that was sent last.
func (t *tracker) Inject(f dbproxy.Fault) { t.queue[len(t.queue)-1].fault = f }

// server takes a message of the server.
func (t *tracker) server(kind byte, body []byte) (dbproxy.Reply, error) {
	var r dbproxy.Reply
	switch kind {
	case noticeMsg, notificationMsg, parameterMsg:
		return r, nil // may come at any time
	case commandCompleteMsg:
		var m pgproto3.CommandComplete
		if err := m.Decode(body); err != nil {
			return r, err
		}
		tag := string(m.CommandTag)
		r.Committed, r.RolledBack = tag == "COMMIT", tag == "ROLLBACK"
		if head := t.head(); head.commit && (!head.ends || r.Committed || r.RolledBack) {
			r.Commit, r.Fault = true, head.fault
		}
		t.popExecution()
	case emptyQueryMsg, portalSuspendedMsg:
		t.popExecution()
	case errorMsg:
		if head := t.head(); head.commit {
			r.Commit, r.Fault = true, head.fault
		}
		// The server skips the rest of the unit; so does ready.
	case readyMsg:
		t.ready()
		return r, nil
	case backendKeyMsg:
		var m pgproto3.BackendKeyData
		if err := m.Decode(body); err != nil {
			return r, err
		}
		r.ID = m.ProcessID
	}
	if t.flushed && !t.unitSent() {
		t.flushed, t.answered = false, true
	}
	return r, nil
}

// ready ends a unit: it was the client's turn if nothing else is on its way.
func (t *tracker) ready() {
	for len(t.queue) > 0 {
		ends := t.queue[0].ends
		t.queue = t.queue[1:]
		if ends {
			break
		}
	}
	t.started = true
	t.flushed = false
	t.answered = !t.unitSent()
}

func (t *tracker) head() request {
	if len(t.queue) == 0 {
		return request{}
	}
	return t.queue[0]
}

// popExecution removes the execution that was answered. A simple query stays until
// the server is ready, since it may have several statements.
func (t *tracker) popExecution() {
	if len(t.queue) > 0 && !t.queue[0].ends {
		t.queue = t.queue[1:]
	}
}

// unitSent reports whether the server owes a ReadyForQuery.
func (t *tracker) unitSent() bool {
	for _, r := range t.queue {
		if r.ends {
			return true
		}
	}
	return false
}
