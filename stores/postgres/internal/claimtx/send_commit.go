package claimtx

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// sendCommit sends a text that ends with COMMIT, which the server reads only if what is
// before it succeeds, and reads the answer, as the driver does but for two things. When
// ctx ends it asks the server for no cancellation: one that waits for a synchronous standby
// would stop waiting and commit all the same. And a warning that it has done so is an error.
func sendCommit(ctx context.Context, pg *pgconn.PgConn, text string) (tag pgconn.CommandTag, err error) {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = pg.Conn().SetDeadline(time.Unix(1, 0))
		close(expired)
	})
	defer func() {
		if stop() {
			return
		}
		<-expired
		if err == nil {
			_ = pg.Conn().SetDeadline(time.Time{})
		} else {
			_ = pg.Conn().Close() // so that whoever closes the connection has nothing to wait for
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}()
	pg.Frontend().Send(&pgproto3.Query{String: text})
	if err := pg.Frontend().Flush(); err != nil {
		return tag, err
	}
	var answer error
	for {
		// What the driver does at the end of a context is the pool's to configure.
		message, err := pg.ReceiveMessage(context.Background()) //nolint:contextcheck // see above
		switch {
		case err != nil && answer != nil: // the last word of a server that is gone
			return tag, answer
		case err != nil:
			return tag, err
		}
		switch m := message.(type) {
		case *pgproto3.CommandComplete:
			tag = pgconn.NewCommandTag(string(m.CommandTag))
		case *pgproto3.ErrorResponse:
			answer = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.NoticeResponse:
			if isWarning(m) && answer == nil {
				answer = fmt.Errorf("COMMIT was answered with a warning: %s (SQLSTATE %s)", m.Message, m.Code)
			}
		case *pgproto3.ReadyForQuery:
			return tag, answer
		}
	}
}

// isWarning is asked of what the server says beside its answer to COMMIT: of a wait that was
// canceled, and of one that its shutdown has ended. Deferred triggers may warn, too, of
// their own affairs.
func isWarning(m *pgproto3.NoticeResponse) bool {
	const canceled, adminShutdown = "01000", "57P01"
	warning := m.SeverityUnlocalized == "WARNING"
	return warning && (m.Code == adminShutdown || m.Code == canceled && m.Routine == "SyncRepWaitForLSN")
}
