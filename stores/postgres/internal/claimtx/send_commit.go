package claimtx

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// sendCommit sends statements and COMMIT, which the server reads only if what is before it
// succeeds, and reads the answer, as the driver does but for two things. When ctx ends it asks
// the server for no cancellation: one that waits for a synchronous standby would stop
// waiting and commit all the same. And a warning that it has done so is an error.
func sendCommit(ctx context.Context, pg *pgconn.PgConn, kept *prepared, before []tables.Statement) (tag pgconn.CommandTag, err error) {
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
	parsing := queue(pg.Frontend(), kept, before)
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
		case *pgproto3.ParseComplete:
			parsing = kept.complete(parsing)
		case *pgproto3.CommandComplete:
			tag = pgconn.NewCommandTag(string(m.CommandTag))
		case *pgproto3.ErrorResponse:
			answer = pgconn.ErrorResponseToPgError(m)
			if tables.NotPrepared(answer) {
				kept.forget()
			}
		case *pgproto3.NoticeResponse:
			if isWarning(m) && answer == nil {
				answer = fmt.Errorf("COMMIT was answered with a warning: %s (SQLSTATE %s)", m.Message, m.Code)
			}
		case *pgproto3.ReadyForQuery:
			return tag, answer
		}
	}
}

// queue writes what is sent at once, and returns what is prepared by it.
func queue(to *pgproto3.Frontend, kept *prepared, before []tables.Statement) (now []parsing) {
	const commit = "commit"
	if len(before) == 0 {
		to.Send(&pgproto3.Query{String: commit})
		return nil
	}
	for _, s := range append(slices.Clip(before), tables.Statement{Text: commit}) {
		name, prepare := kept.name(s.Text, now)
		if prepare {
			now = append(now, parsing{s.Text, name})
			to.Send(&pgproto3.Parse{Name: name, Query: s.Text})
		}
		values, formats := bound(s.Args)
		to.Send(&pgproto3.Bind{PreparedStatement: name, Parameters: values, ParameterFormatCodes: formats})
		to.Send(&pgproto3.Execute{})
	}
	to.Send(&pgproto3.Sync{})
	return now
}

// bound returns arguments as the server takes them: bytes as they are, all else as text.
func bound(args []any) (values [][]byte, formats []int16) {
	values, formats = make([][]byte, len(args)), make([]int16, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case []byte:
			values[i], formats[i] = v, pgtype.BinaryFormatCode
		case string:
			values[i] = []byte(v)
		case int64:
			values[i] = strconv.AppendInt(nil, v, 10)
		default:
			panic("claimtx: an argument is of an unknown type") // a mistake in the program
		}
	}
	return values, formats
}

// isWarning is asked of what the server says beside its answer to COMMIT: of a wait that was
// canceled, and of one that its shutdown has ended. Deferred triggers may warn, too, of
// their own affairs.
func isWarning(m *pgproto3.NoticeResponse) bool {
	const canceled, adminShutdown = "01000", "57P01"
	warning := m.SeverityUnlocalized == "WARNING"
	return warning && (m.Code == adminShutdown || m.Code == canceled && m.Routine == "SyncRepWaitForLSN")
}
