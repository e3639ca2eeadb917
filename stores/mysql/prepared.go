package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// prepared is a statement of the store's own that a connection has prepared when it
// needed it first, so that the server reads its text once.
type prepared struct {
	stmt    nativeStatement
	refused bool // the server does not prepare it: there may be too many
}

// errNotPrepared says that a statement was not sent, and is to be sent as text.
var errNotPrepared = errors.New("the server does not prepare the statement")

// exec sends the statement. It returns errNotPrepared if the server has refused to
// prepare it, and an error that isUnsent if the connection was lost before it was sent.
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
		p.stmt = nil // whoever is in between has forgotten it
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
		// Without err itself: a deadline that has passed here is not the handler's.
		return fmt.Errorf("%w: cannot prepare a statement of the store's: %s", driver.ErrBadConn, err.Error())
	}
	p.stmt, err = asNative(stmt)
	return err
}
