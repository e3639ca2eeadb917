package claimtx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Handed are statements that a handler queued instead of sending.
type Handed struct {
	Statements []Request
	// Failed adds the statement to an error. A nil error means that it had another number of rows
	// than required.
	Failed func(at int, rows int64, err error) error
}

// Request is one queued statement.
type Request struct {
	SQL  string
	Args []any
	Rows int64 // the number of rows it must change or return; negative: any
}

// errCopy: the server would close the connection, because statements follow where it expects rows.
var errCopy = errors.New("postgres: COPY from or to the program cannot be queued: use CopyFrom of TxFromContext")

// Hand sends statements with COMMIT, in one round trip. Statements that are new to the connection
// are described by the server first, in another one. Where nothing is prepared (see linkTo), all
// statements are sent now.
func (t *Tx) Hand(ctx context.Context, h *Handed) (err error) {
	l := t.link()
	texts, err := t.texts(h, l == nil)
	if err != nil {
		return err
	}
	if err := t.Acquire(); err != nil {
		return err
	}
	defer func() { t.Release(err) }()
	if l == nil {
		return t.sendHanded(ctx, texts, h, nil)
	}
	staged, err := t.stage(ctx, l, texts, h)
	if err != nil {
		return err
	}
	t.staged, t.handed = slices.Concat(staged, t.staged), h
	return nil
}

// texts returns the texts for the server, or why a statement is refused.
func (t *Tx) texts(h *Handed, simple bool) (texts []string, err error) {
	texts = make([]string, len(h.Statements))
	for i, r := range h.Statements {
		reading, err := t.inspect(r.SQL, simple)
		if err != nil {
			return nil, h.Failed(i, 0, err)
		}
		if reading.Copy && (containsFold(r.SQL, "stdin") || containsFold(r.SQL, "stdout")) {
			return nil, h.Failed(i, 0, errCopy)
		}
		if texts[i] = r.SQL; r.Rows >= 0 {
			if texts[i], err = counted(r.SQL, r.Rows); err != nil {
				return nil, h.Failed(i, 0, err)
			}
		}
	}
	return texts, nil
}

// stage returns the statements with their encoded arguments.
func (t *Tx) stage(ctx context.Context, l *link, texts []string, h *Handed) (sqlstore.Staged, error) {
	if at, err := l.describe(ctx, t.conn.PgConn(), texts); err != nil {
		return nil, h.Failed(at, 0, err)
	}
	staged := make(sqlstore.Staged, len(texts))
	for i, text := range texts {
		args, err := encode(t.conn.TypeMap(), l.described[text], h.Statements[i].Args)
		if err != nil {
			return nil, h.Failed(i, 0, err)
		}
		staged[i] = tables.Statement{Text: text, Args: args}
	}
	return staged, nil
}

// encoded is an argument that the driver encoded.
type encoded struct {
	value  []byte
	format int16
}

// encode encodes arguments as the driver does. Strings stay as they are.
func encode(types *pgtype.Map, parameters []uint32, args []any) ([]any, error) {
	if len(parameters) != len(args) {
		return nil, fmt.Errorf("postgres: the statement has %d parameters, and there are %d arguments", len(parameters), len(args))
	}
	values := slices.Clone(args)
	var others []int
	for i, arg := range args {
		if _, text := arg.(string); !text {
			others = append(others, i)
		}
	}
	if len(others) == 0 {
		return values, nil
	}
	var b pgx.ExtendedQueryBuilder
	if err := b.Build(types, &pgconn.StatementDescription{ParamOIDs: parameters}, args); err != nil {
		return nil, err
	}
	for _, i := range others {
		values[i] = encoded{b.ParamValues[i], b.ParamFormats[i]}
	}
	return values, nil
}

// describe prepares the new texts and asks for their parameters' types, in one round trip. at is
// the index of a refused text.
func (l *link) describe(ctx context.Context, pg *pgconn.PgConn, texts []string) (at int, err error) {
	var (
		asked []int
		bytes int
		fresh int
	)
	for _, text := range texts {
		if _, known := l.described[text]; !known {
			fresh++
		}
	}
	if len(l.prepared)+fresh > maxPrepared {
		l.discard(pg.Frontend()) // before the known statements are used
	}
	for i, text := range texts {
		if _, known := l.described[text]; known {
			continue
		}
		name := l.prepare(pg.Frontend(), text)
		pg.Frontend().SendParse(&pgproto3.Parse{Name: name, Query: text})
		pg.Frontend().SendDescribe(&pgproto3.Describe{ObjectType: 'S', Name: name})
		l.described[text] = nil
		asked, bytes = append(asked, i), bytes+len(text)
	}
	if len(asked) == 0 {
		return 0, nil
	}
	pg.Frontend().SendSync(&pgproto3.Sync{})
	answered := 0
	err = converse(ctx, pg, bytes > buffer, func(message pgproto3.BackendMessage) error {
		switch m := message.(type) {
		case *pgproto3.ParameterDescription:
			l.described[texts[asked[answered]]] = append([]uint32{}, m.ParameterOIDs...)
		case *pgproto3.RowDescription, *pgproto3.NoData:
			answered++
		}
		return nil
	})
	if err != nil {
		for _, i := range asked {
			l.drop(texts[i])
		}
		return asked[min(answered, len(asked)-1)], err
	}
	return 0, nil
}

// sendHanded sends the statements in a separate round trip. If saved is set, it first sends a
// member's savepoint, and calls saved once that is made. Before sending anything the driver may
// refuse a text or an argument, or see the end of ctx.
func (t *Tx) sendHanded(ctx context.Context, texts []string, h *Handed, saved func()) error {
	var batch pgx.Batch
	if saved != nil {
		batch.Queue(Savepoint)
	}
	for i, text := range texts {
		batch.Queue(text, h.Statements[i].Args...)
	}
	results := t.conn.SendBatch(ctx, &batch)
	if saved != nil {
		if _, err := results.Exec(); err != nil {
			return errors.Join(err, results.Close())
		}
		saved()
	}
	for i := range texts {
		if _, err := results.Exec(); err != nil {
			return errors.Join(h.failed(i, err), results.Close())
		}
	}
	return results.Close()
}

// failed adds the failed statement, or the wrong number of rows, to the error.
func (h *Handed) failed(at int, err error) error {
	if h.Statements[at].Rows >= 0 {
		if rows, ok := miscounted(err); ok {
			return h.Failed(at, rows, nil)
		}
	}
	return h.Failed(at, 0, err)
}
