package mysql

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

const (
	// maxCached is how many of handlers' statements a connection keeps prepared. The servers'
	// default limit for all clients together is 16,382.
	maxCached = 32
	// maxCachedText is the longest cached text, in bytes. Longer ones, such as inserts of many
	// rows, are seldom repeated.
	maxCachedText = 4096
)

// statementCache keeps the latest statements with parameters that handlers sent on a connection.
// They stay prepared: repeating one takes one round trip instead of two, and no parsing.
type statementCache struct{ last []cachedStatement } // the latest first

type cachedStatement struct {
	text  string
	types string // types of the arguments, which the servers remember in the statement
	stmt  nativeStatement
}

// get returns a text's statement for arguments of these types, and prepares it if needed.
func (c *statementCache) get(ctx context.Context, on native, text string, args []driver.NamedValue) (nativeStatement, error) {
	var few [32]byte
	types := appendTypes(few[:0], args)
	if i := slices.IndexFunc(c.last, func(s cachedStatement) bool { return s.text == text && s.types == string(types) }); i >= 0 {
		s := c.last[i]
		copy(c.last[1:i+1], c.last[:i])
		c.last[0] = s
		return s.stmt, nil
	}
	prepared, err := on.PrepareContext(ctx, text)
	if number(err) == tooManyStatements && len(c.last) > 0 {
		if err := c.clear(); err != nil {
			return nil, err
		}
		prepared, err = on.PrepareContext(ctx, text)
	}
	if err != nil {
		return nil, err
	}
	stmt, err := asNative(prepared)
	if err != nil {
		return nil, err
	}
	if stmt.NumInput() != len(args) { // database/sql prepares it and reports the error
		return nil, cmp.Or(closeStatement(stmt), driver.ErrSkip)
	}
	if len(c.last) == maxCached {
		oldest := c.last[maxCached-1]
		c.last = c.last[:maxCached-1]
		if err := closeStatement(oldest.stmt); err != nil {
			return nil, err
		}
	}
	c.last = slices.Insert(c.last, 0, cachedStatement{text, string(types), stmt})
	return stmt, nil
}

// clear closes all statements.
func (c *statementCache) clear() (err error) {
	for _, s := range c.last {
		err = errors.Join(err, closeStatement(s.stmt))
	}
	c.last = nil
	return err
}

// appendTypes appends the argument types as the driver sends them to the server.
func appendTypes(b []byte, args []driver.NamedValue) []byte {
	for _, arg := range args {
		kind := byte('?')
		switch v := arg.Value.(type) {
		case nil:
			kind = 'n'
		case []byte:
			if kind = 's'; v == nil {
				kind = 'n'
			}
		case json.RawMessage:
			if kind = 's'; v == nil {
				kind = 'n'
			}
		case string, time.Time:
			kind = 's'
		case int64:
			kind = 'i'
		case uint64:
			kind = 'u'
		case float64:
			kind = 'f'
		case bool:
			kind = 'b'
		}
		b = append(b, kind)
	}
	return b
}

// keepUnless drops a statement that failed. The server may be unable to run it again. Also, large
// values are sent before the execution, so they, or the server's error about them, would go to the
// next execution.
func (c *statementCache) keepUnless(err error, stmt nativeStatement) error {
	if err == nil {
		return nil
	}
	c.last = slices.DeleteFunc(c.last, func(s cachedStatement) bool { return s.stmt == stmt })
	if closing := closeStatement(stmt); closing != nil {
		return errors.Join(err, closing)
	}
	return err
}

// caches reports whether a handler's statement is kept prepared. After a change of the session,
// such as USE, a text may mean something else.
func (c *conn) caches(text string, args []driver.NamedValue, does conduct) bool {
	return len(args) > 0 && len(text) <= maxCachedText && does == plain && c.keeps && !c.discard.Load()
}
