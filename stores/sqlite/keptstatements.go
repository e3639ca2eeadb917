package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
)

// keptStatements keeps the statements of the texts that were sent last. Handlers send the same few
// texts for each message, and compiling one takes as long as running it. The caller holds conn.mu.
type keptStatements struct {
	last   []keptStatement // in the order of their use
	closed bool
}

type keptStatement struct {
	text     string
	prepared preparedStatement
}

const (
	maxKeptStatements = 32
	maxKeptText       = 4096 // bytes; longer texts are rarely sent twice
)

// take returns the text's statement, or nil. While it is in use, another use compiles the text again.
func (k *keptStatements) take(text string) preparedStatement {
	i := slices.IndexFunc(k.last, func(s keptStatement) bool { return s.text == text })
	if i < 0 {
		return nil
	}
	prepared := k.last[i].prepared
	k.last = slices.Delete(k.last, i, i+1)
	return prepared
}

// give takes a statement back after its use. It closes it, or the one that was used least recently, if
// there are too many.
func (k *keptStatements) give(text string, prepared preparedStatement) error {
	if k.closed || len(text) > maxKeptText {
		return prepared.Close()
	}
	var err error
	if len(k.last) == maxKeptStatements {
		err = k.last[0].prepared.Close()
		k.last = slices.Delete(k.last, 0, 1)
	}
	k.last = append(k.last, keptStatement{text, prepared})
	return err
}

// close closes all statements. Those in use are closed when they are given back.
func (k *keptStatements) close() error {
	var errs []error
	for _, s := range k.last {
		errs = append(errs, s.prepared.Close())
	}
	k.last, k.closed = nil, true
	return errors.Join(errs...)
}

// statementFor returns a statement for one use of a text. The caller gives it back, or closes it after an
// error.
func (c *conn) statementFor(ctx context.Context, text string) (preparedStatement, error) {
	if prepared := c.kept.take(text); prepared != nil {
		return prepared, nil
	}
	return c.prepareNative(ctx, text)
}

// exec runs a text that returns no rows.
func (c *conn) exec(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	prepared, err := c.statementFor(ctx, text)
	if err != nil {
		return nil, err
	}
	result, err := prepared.ExecContext(ctx, args)
	if err != nil {
		_ = prepared.Close() // reports the same error again
		return nil, err
	}
	return result, c.kept.give(text, prepared)
}

// query runs a text that returns rows. The statement is given back when its rows are closed.
func (c *conn) query(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	prepared, err := c.statementFor(ctx, text)
	if err != nil {
		return nil, err
	}
	result, err := prepared.QueryContext(ctx, args)
	if err != nil {
		_ = prepared.Close() // reports the same error again
		return nil, err
	}
	n, ok := result.(nativeRows)
	if !ok {
		return nil, errors.Join(lacks(result), prepared.Close())
	}
	return &borrowedRows{nativeRows: n, conn: c, text: text, prepared: prepared}, nil
}

// borrowedRows are the rows of a statement that is given back afterwards.
type borrowedRows struct {
	nativeRows
	conn     *conn
	text     string
	prepared preparedStatement
}

// Close implements driver.Rows. The caller holds conn.mu, and calls it once.
func (r *borrowedRows) Close() error {
	if err := r.nativeRows.Close(); err != nil {
		_ = r.prepared.Close()
		return err
	}
	return r.conn.kept.give(r.text, r.prepared)
}
