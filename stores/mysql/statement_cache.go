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
	// maxCached is how many of the handlers' statements a connection keeps prepared. The
	// servers allow all their clients together 16,382 by default.
	maxCached = 32
	// maxCachedText is the longest of their texts, in bytes. Longer ones, as those that
	// insert many rows, are seldom sent twice.
	maxCachedText = 4096
)

// statementCache has the statements with parameters that handlers have sent on a
// connection last. They stay prepared: one that is sent again takes one trip, and not
// two and the parsing of its text.
type statementCache struct{ last []cachedStatement } // the latest first

type cachedStatement struct {
	text  string
	types string // of the arguments: the servers remember in a statement what they made of them
	stmt  nativeStatement
}

// get returns the statement of a text for arguments of such types, and prepares it if
// need be.
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
	if stmt.NumInput() != len(args) { // database/sql prepares it and says so
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

// appendTypes appends what the driver tells the server of the arguments' types.
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

// keepUnless drops a statement that has failed. The server may not be able to run it any
// more; and large values are sent ahead of the execution, so that they, or what the server
// said of them, would be those of the next.
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

// caches reports whether a statement of a handler's is kept prepared. After a change of
// the session, as by USE, a text may mean something else than before.
func (c *conn) caches(text string, args []driver.NamedValue, does conduct) bool {
	return len(args) > 0 && len(text) <= maxCachedText && does == plain && c.keeps && !c.discard.Load()
}
