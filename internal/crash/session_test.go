package crash

import (
	"context"
	"fmt"
	"regexp"

	"github.com/ThreeDotsLabs/watermill/message"
)

// sessions is what handlers with the conduct settings do to their connections, each in its
// own way: nothing that their own message could suffer from, but whoever has the
// connection after them.
type sessions struct {
	settings [][]string // statements; one of the lists for each message
	unclean  string     // a query for what is not as the service has set it; "": all is
}

var postgresSessions = sessions{
	settings: [][]string{
		{"SET synchronous_commit = off", "SET LOCAL synchronous_commit = on"},
		{"SET ROLE pg_monitor"},
		{"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"},
	},
	unclean: `SELECT concat_ws(', ',
CASE current_setting('synchronous_commit') WHEN 'off' THEN 'synchronous_commit is off' END,
CASE WHEN current_user <> session_user THEN 'the role is ' || current_user END,
CASE current_setting('default_transaction_read_only') WHEN 'on' THEN 'transactions are read-only' END)`,
}

var mysqlSessions = sessions{
	settings: [][]string{{"SET SESSION sql_mode = ''"}, {"SET SESSION TRANSACTION READ ONLY"}},
	unclean:  "SELECT CASE @@SESSION.sql_mode WHEN '' THEN 'sql_mode is empty' ELSE '' END",
}

var sqliteSessions = sessions{settings: [][]string{{"PRAGMA query_only = 1"}}}

// change does it, when the effects are written.
func (s sessions) change(ctx context.Context, tx transaction, msg *message.Message) error {
	for _, query := range s.settings[item(msg.UUID)%len(s.settings)] {
		if err := tx.exec(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// look writes down what a handler finds that it has not done.
func (s sessions) look(ctx context.Context, tx transaction, r *recorder) error {
	if s.unclean == "" {
		return nil
	}
	found, err := tx.ask(ctx, s.unclean)
	if err == nil && found != "" {
		r.say(ctx, saidSession, found)
	}
	return err
}

// anothers are refusals of a database for which no other message may be to blame.
var anothers = regexp.MustCompile(`(?i)read.?only (transaction|database)|permission denied`)

// sessions is I13 for what handlers set in their sessions: no other message meets it.
func (a *audit) sessions(history []event) {
	for _, e := range history {
		switch {
		case e.What == saidSession:
			a.reportf("I13", key{e.Consumer, e.ID}, "its handler met the session of another one: %s", e.Detail)
		case e.What == saidClaim && anothers.MatchString(e.Detail):
			a.reportf("I13", key{e.Consumer, e.ID}, "its claim met the session of another one: %s", e.Detail)
		}
	}
}
