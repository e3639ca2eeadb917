package claimtx

import (
	"cmp"
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

// answer is what the server has said to COMMIT.
type answer struct {
	tag  pgconn.CommandTag // COMMIT's, if done is all that was sent
	done int               // statements
}

// sendCommit sends statements and COMMIT, which the server reads only if what is before it
// succeeds, and reads the answer. A warning that a wait for a synchronous standby was canceled
// is an error.
func sendCommit(ctx context.Context, pg *pgconn.PgConn, l *link, before []tables.Statement) (a answer, err error) {
	large := queue(pg.Frontend(), l, before)
	err = converse(ctx, pg, large, func(message pgproto3.BackendMessage) error {
		switch m := message.(type) {
		case *pgproto3.CommandComplete:
			a.tag = pgconn.NewCommandTag(string(m.CommandTag))
			a.done++
		case *pgproto3.EmptyQueryResponse:
			a.done++
		case *pgproto3.NoticeResponse:
			if isWarning(m) {
				return fmt.Errorf("COMMIT was answered with a warning: %s (SQLSTATE %s)", m.Message, m.Code)
			}
		}
		return nil
	})
	if err != nil && l != nil {
		l.failed(pg, append(slices.Clip(before), tables.Statement{Text: commit}), err)
	}
	return a, err
}

// converse sends what was written for the server, and hands on what it answers until it is
// ready, as the driver does but for one thing. When ctx ends it asks the server for no
// cancellation: a COMMIT that waits for a synchronous standby would stop waiting and commit all
// the same. The error is the server's, or of each, or the connection's, which is closed then.
// While much is sent the server's answers are read, or each side might wait for the other.
func converse(ctx context.Context, pg *pgconn.PgConn, much bool, each func(pgproto3.BackendMessage) error) (err error) {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = pg.Conn().SetDeadline(time.Unix(1, 0))
		close(expired)
	})
	broken := false
	defer func() {
		late := !stop()
		if late {
			<-expired
		}
		switch {
		case late && broken:
			_ = pg.Conn().Close() // so that there is nothing to wait for
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case late:
			_ = pg.Conn().SetDeadline(time.Time{})
		}
		if broken {
			_ = pg.Close(ctx)
		}
	}()
	flush := pg.Frontend().Flush
	if much {
		flushed := make(chan struct{})
		go func() {
			defer close(flushed)
			if pg.Frontend().Flush() != nil {
				_ = pg.Conn().Close() // for who reads
			}
		}()
		defer func() { <-flushed }()
		flush = func() error { return nil }
	}
	if err := flush(); err != nil {
		broken = true
		return err
	}
	var answer error
	for {
		// What the driver does at the end of a context is the pool's to configure.
		message, err := pg.ReceiveMessage(context.Background()) //nolint:contextcheck // see above
		if err != nil {
			broken = true
			return cmp.Or[error](answer, lostError{err}) // the last word of a server that is gone
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			answer = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return answer
		default:
			answer = cmp.Or(answer, each(message))
		}
	}
}

// lostError is of a connection that was lost when something had been sent.
type lostError struct{ error }

// SafeToRetry is what pgconn.SafeToRetry asks for.
func (lostError) SafeToRetry() bool { return false }

// Unwrap returns the driver's error.
func (e lostError) Unwrap() error { return e.error }

// buffer is what sockets are sure to take.
const buffer = 32 << 10

const commit = "commit"

// queue writes what is sent at once, and reports whether that is much.
func queue(to *pgproto3.Frontend, l *link, before []tables.Statement) (much bool) {
	if len(before) == 0 {
		to.Send(&pgproto3.Query{String: commit})
		return false
	}
	bytes := 0
	l.begin()
	for _, s := range append(slices.Clip(before), tables.Statement{Text: commit}) {
		bytes += l.queue(to, &s)
	}
	to.Send(&pgproto3.Sync{})
	return bytes > buffer
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
		case encoded:
			values[i], formats[i] = v.value, v.format
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
