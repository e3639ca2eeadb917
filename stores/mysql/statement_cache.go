package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
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
	text string
	stmt nativeStatement
}

// get returns the statement of a text, and prepares it if need be.
func (c *statementCache) get(ctx context.Context, on native, text string) (nativeStatement, error) {
	if i := slices.IndexFunc(c.last, func(s cachedStatement) bool { return s.text == text }); i >= 0 {
		s := c.last[i]
		copy(c.last[1:i+1], c.last[:i])
		c.last[0] = s
		return s.stmt, nil
	}
	prepared, err := on.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	stmt, err := asNative(prepared)
	if err != nil {
		return nil, err
	}
	if len(c.last) == maxCached {
		oldest := c.last[maxCached-1]
		c.last = c.last[:maxCached-1]
		if err := oldest.stmt.Close(); err != nil {
			return nil, err
		}
	}
	c.last = slices.Insert(c.last, 0, cachedStatement{text, stmt})
	return stmt, nil
}

// keepUnless drops a statement of which err says that the server cannot run it any more.
func (c *statementCache) keepUnless(err error, stmt nativeStatement) error {
	if n := number(err); n == unknownStatement || n == needsReprepare {
		c.last = slices.DeleteFunc(c.last, func(s cachedStatement) bool { return s.stmt == stmt })
		return errors.Join(err, stmt.Close())
	}
	return err
}

// caches reports whether a statement of a handler's is kept prepared. Where the driver
// puts the values into the text, nothing is prepared.
func (c *conn) caches(text string, args []driver.NamedValue, does conduct) bool {
	return len(args) > 0 && len(text) <= maxCachedText && does == plain && !c.interpolates
}
