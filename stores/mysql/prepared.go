package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// prepared is a statement of the store, prepared at its first use on a connection, so that the
// server parses its text once.
type prepared struct {
	stmt    nativeStatement
	refused bool // the server refused to prepare it, perhaps because there are too many
}

// errNotPrepared: the statement was not sent, and must be sent as text.
var errNotPrepared = errors.New("the server does not prepare the statement")

// exec sends the statement. It returns errNotPrepared if the server refused to prepare it, and an
// error for which isUnsent is true if the connection was lost before it was sent.
func (p *prepared) exec(ctx context.Context, on native, text string, values ...driver.Value) (affected int64, err error) {
	if p.stmt == nil && !p.refused {
		if err := p.prepare(ctx, on, text); err != nil {
			return 0, err
		}
	}
	if p.refused {
		return 0, errNotPrepared
	}
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	result, err := p.stmt.ExecContext(ctx, args)
	if number(err) == unknownStatement {
		p.stmt = nil // a proxy in between has dropped it
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (p *prepared) prepare(ctx context.Context, on native, text string) error {
	stmt, err := on.PrepareContext(ctx, text)
	if number(err) != 0 {
		p.refused = true
		return nil
	}
	if err != nil {
		// err is not wrapped: a deadline that passed here is not the handler's.
		return fmt.Errorf("%w: cannot prepare a statement of the store's: %s", driver.ErrBadConn, err.Error())
	}
	p.stmt, err = asNative(stmt)
	return err
}

const (
	mostSaying      = 8        // prepared completions with outputs, per connection
	mostSaid        = 3        // statements before a completion
	maxSaidPrepared = 16 << 10 // bytes of their values
)

// completion returns the prepared completion with the staged statements before it, and their
// values, or nil if it must be sent as text.
func (c *conn) completion(texts *texts, staged sqlstore.Staged) (with *prepared, text string, values []driver.Value) {
	if len(staged) == 0 {
		return &c.completing, texts.begins + texts.completion, nil
	}
	size := 0
	text = texts.begins
	for _, s := range staged {
		size += sizeOf(s)
		text += s.Text + "; "
		for _, arg := range asBytes(s).Args {
			values = append(values, arg)
		}
	}
	text += texts.completion
	if with = c.saying[text]; with == nil && len(c.saying) < mostSaying {
		with = &prepared{}
	}
	if len(staged) > mostSaid || size > maxSaidPrepared || with == nil {
		return nil, "", nil
	}
	if c.saying == nil {
		c.saying = make(map[string]*prepared)
	}
	c.saying[text] = with
	return with, text, values
}
