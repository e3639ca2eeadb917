package claimtx

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// link lives as long as a connection of the driver. With it, the statements of every message are
// prepared once, and bypass the driver's handling of arbitrary statements.
type link struct {
	tx        pgx.Tx              // represents the transactions on the connection, one after the other
	prepared  map[string]string   // names of prepared statements, by text
	described map[string][]uint32 // parameter types of handlers' statements, by text
	unsure    []string            // texts that the current send prepares, if the server gets that far
	arguments arguments
}

const (
	linkKey = "millpond"
	// maxPrepared bounds a connection's prepared statements.
	maxPrepared = 200
)

// linkTo returns the link to a connection. It is nil if the driver is configured to prepare
// nothing, for poolers, or to trace what it sends.
func linkTo(ctx context.Context, conn *pgx.Conn) (*link, error) {
	kept := conn.PgConn().CustomData()
	l, known := kept[linkKey].(*link)
	if known {
		return l, nil
	}
	if c := conn.Config(); c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && c.StatementCacheCapacity > 0 && c.Tracer == nil {
		// The driver creates a transaction once it has sent a statement, whatever the statement
		// was.
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: ";"})
		if err != nil {
			return nil, err
		}
		l = &link{tx: tx, prepared: make(map[string]string), described: make(map[string][]uint32)}
	}
	kept[linkKey] = l
	return l, nil
}

// link returns the link that the claim made. It is nil if the handler may have changed the session,
// perhaps by discarding prepared statements.
func (t *Tx) link() *link {
	if t.session.marked.Load() {
		return nil
	}
	l, _ := t.conn.PgConn().CustomData()[linkKey].(*link)
	return l
}

// exchange sends statements in one round trip, and calls each one's Read with its rows. After an
// error some of them did not run.
func (l *link) exchange(ctx context.Context, pg *pgconn.PgConn, statements ...tables.Statement) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	to := pg.Frontend()
	l.begin()
	for i := range statements {
		l.queue(to, &statements[i])
	}
	to.SendSync(&pgproto3.Sync{})
	at := 0
	err := converse(ctx, pg, false, func(message pgproto3.BackendMessage) error {
		switch m := message.(type) {
		case *pgproto3.CommandComplete:
			at++
		case *pgproto3.DataRow:
			if read := statements[at].Read; read != nil {
				return read(&row{values: m.Values})
			}
		}
		return nil
	})
	if err != nil {
		l.failed(pg, statements, err)
	}
	return err
}

// begin is called before statements are queued.
func (l *link) begin() {
	if l != nil {
		l.unsure = l.unsure[:0]
	}
}

// queue writes a statement for the server, and returns its approximate size in bytes. The server
// prepares it on first use; without a link, every time.
func (l *link) queue(to *pgproto3.Frontend, s *tables.Statement) (bytes int) {
	var name string
	known := false
	if l != nil {
		if name, known = l.prepared[s.Text]; !known {
			name = l.prepare(to, s.Text)
			l.unsure = append(l.unsure, s.Text)
		}
	}
	if !known {
		to.SendParse(&pgproto3.Parse{Name: name, Query: s.Text})
		bytes = len(s.Text)
	}
	room := &arguments{}
	if l != nil {
		room = &l.arguments
	}
	defer room.clear()
	values, formats := room.encode(s.Args)
	bind := pgproto3.Bind{PreparedStatement: name, Parameters: values, ParameterFormatCodes: formats}
	if s.Read != nil {
		bind.ResultFormatCodes = inBinary
	}
	to.SendBind(&bind)
	to.SendExecute(&pgproto3.Execute{})
	const around = 100 // the size of the server's answer
	bytes += around
	for _, v := range values {
		bytes += len(v)
	}
	return bytes
}

var inBinary = []int16{pgtype.BinaryFormatCode}

// prepare names a statement that is about to be prepared. The name identifies the text: so behind a
// pooler, a shared server connection gives an error and not another statement.
func (l *link) prepare(to *pgproto3.Frontend, text string) (name string) {
	if len(l.prepared) >= maxPrepared {
		l.discard(to)
	}
	sum := sha256.Sum256([]byte(text))
	name = "millpond_" + hex.EncodeToString(sum[:16])
	to.SendClose(&pgproto3.Close{ObjectType: 'S', Name: name}) // no error if there is none
	l.prepared[text] = name
	return name
}

// discard makes the server drop the prepared statements.
func (l *link) discard(to *pgproto3.Frontend) {
	for text, name := range l.prepared {
		to.SendClose(&pgproto3.Close{ObjectType: 'S', Name: name})
		l.drop(text)
	}
}

// failed forgets statements that may be missing or whose plans no longer fit, so that they are
// prepared again. If somebody else discards a connection's prepared statements, it gets no link.
func (l *link) failed(pg *pgconn.PgConn, statements []tables.Statement, err error) {
	for _, text := range l.unsure {
		l.drop(text)
	}
	if !ofValues(err) {
		for i := range statements {
			l.drop(statements[i].Text)
		}
	}
	if tables.NotPrepared(err) {
		pg.CustomData()[linkKey] = (*link)(nil)
	}
}

// ofValues reports whether an error is about values in arguments or rows, whatever the plan.
func ofValues(err error) bool {
	const dataException, integrityViolation = "22", "23"
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(refused.Code, dataException) || strings.HasPrefix(refused.Code, integrityViolation))
}

func (l *link) drop(text string) {
	delete(l.prepared, text)
	delete(l.described, text)
}
