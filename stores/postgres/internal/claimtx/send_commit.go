package claimtx

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// answer is the server's answer to COMMIT.
type answer struct {
	tag  pgconn.CommandTag // COMMIT's tag, if done counts all statements
	done int               // completed statements
}

// sendCommit sends statements and COMMIT, which the server runs only if all of them succeed, and
// reads the answer. A warning that a wait for a synchronous standby was canceled counts as an
// error.
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

// converse sends the queued messages, and passes the server's answers to each until the server is
// ready, as the driver does, with one exception: when ctx ends it does not ask the server to
// cancel. A COMMIT that waits for a synchronous standby would stop waiting and commit all the same.
// The error is the server's, or from each, or the connection's, which is then closed. If much is
// sent, answers are read meanwhile, because each side might wait for the other.
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
			_ = pg.Conn().Close() // ends the wait
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
				_ = pg.Conn().Close() // ends the reader's wait
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
		// What the driver does when a context ends is up to the pool's configuration, so it gets
		// none.
		message, err := pg.ReceiveMessage(context.Background()) //nolint:contextcheck // see above
		if err != nil {
			broken = true
			return cmp.Or[error](answer, lostError{err}) // the last message of a server that is gone
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

// lostError is a connection lost after something was sent.
type lostError struct{ error }

// SafeToRetry implements the interface of pgconn.SafeToRetry.
func (lostError) SafeToRetry() bool { return false }

// Unwrap returns the driver's error.
func (e lostError) Unwrap() error { return e.error }

// buffer is how many bytes sockets always accept.
const buffer = 32 << 10

const commit = "commit"

// queue writes the statements, and reports whether they are large.
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

// isWarning selects the server's warnings about COMMIT: that a wait for a standby was canceled, or
// that a shutdown ended it. Deferred triggers may send unrelated warnings.
func isWarning(m *pgproto3.NoticeResponse) bool {
	const canceled, adminShutdown = "01000", "57P01"
	warning := m.SeverityUnlocalized == "WARNING"
	return warning && (m.Code == adminShutdown || m.Code == canceled && m.Routine == "SyncRepWaitForLSN")
}
