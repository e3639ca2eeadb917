package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// conn is one of the store's own connections. Handlers reach it through their *sql.Tx. It refuses
// statements whose text shows that they would end the transaction, and records failures.
type conn struct {
	native native
	at     place

	claiming, completing prepared
	saying               map[string]*prepared // prepared completions with outputs

	noEscapes bool // see judge; known from the first claim on

	keeps bool // whether handlers' statements stay prepared
	cache statementCache

	// Held while the store uses the connection without database/sql, whose lock protects all other
	// uses: a handler's goroutine may close a statement late.
	sending sync.Mutex
	left    []nativeStatement // statements to close: see closeLeft

	// For one attempt at a time; database/sql reuses the connection.
	tx      atomic.Pointer[transaction]
	bound   time.Duration // the bound set in the session
	discard atomic.Bool   // close the connection instead of reusing it
}

var (
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
)

// beginning describes how a transaction of the store begins.
type beginning struct {
	ctx   context.Context // for its statements; the transaction's own context outlives it
	texts *texts
	claim *claimed  // nil: no claim
	all   []claimed // the claims of a batch
	bound time.Duration

	// Results.
	tx   *transaction
	rows int64
	err  error  // the claim's, if the connection is still usable
	won  []bool // for each of all
}

type beginningKey struct{}

// BeginTx implements driver.ConnBeginTx: it claims in the round trip that BEGIN would take.
func (c *conn) BeginTx(values context.Context, _ driver.TxOptions) (driver.Tx, error) {
	b, ok := values.Value(beginningKey{}).(*beginning)
	if !ok {
		return nil, errors.New("mysql: only the store begins transactions on the connections of attempts")
	}
	if b.bound > 0 && b.bound != c.bound { // once per connection if all claims have one bound
		if _, err := c.native.ExecContext(b.ctx, b.texts.bound(b.bound), nil); err != nil {
			return nil, c.lost(err)
		}
		c.bound = b.bound
	}
	c.noEscapes = b.texts.noEscapes
	b.tx = newTransaction(c)
	c.tx.Store(b.tx)
	if b.claim != nil {
		b.rows, b.err = c.claim(b.ctx, b.texts, b.claim)
		if b.err != nil && number(b.err) == 0 {
			return nil, c.lost(b.err)
		}
	}
	if b.all != nil {
		var err error
		if b.won, err = c.claimAll(b.ctx, b.texts, b.all); err != nil {
			return nil, c.lost(err)
		}
	}
	return b.tx, nil
}

func (c *conn) claim(ctx context.Context, t *texts, cl *claimed) (affected int64, err error) {
	if t.maria && cl.orderKey == nil && cl.time == 0 {
		affected, err = c.claiming.exec(ctx, c.native, t.insertValues, cl.consumer, cl.id, cl.token, cl.fingerprint, cl.trace)
		if !errors.Is(err, errNotPrepared) {
			return affected, err
		}
	}
	return execText(ctx, c.native, string(t.claim(make([]byte, 0, 512), cl)))
}

func execText(ctx context.Context, on driver.ExecerContext, text string) (affected int64, err error) {
	result, err := on.ExecContext(ctx, text, nil)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// lost marks a connection in an unknown state, so that it is not reused.
func (c *conn) lost(err error) error {
	if err != nil && number(err) == 0 {
		c.discard.Store(true)
	}
	return err
}

// admit accepts a statement of the store, or a handler's whose text does not show that it would end
// the transaction.
func (c *conn) admit(ctx context.Context, text string) (*transaction, conduct, error) {
	tx := c.tx.Load()
	if tx == nil {
		return nil, ends, sql.ErrTxDone
	}
	if err := tx.acquire(); err != nil {
		return nil, ends, err
	}
	if ctx.Value(storeKey{}) != nil {
		return tx, plain, nil
	}
	does := judge(text, c.noEscapes)
	switch does {
	case ends:
		tx.release(nil)
		tx.managed.Store(true)
		return nil, ends, stores.ErrTxManaged
	case marks:
		c.discard.Store(true)
	case unclear:
		// It may have changed the session, or ended the transaction.
		tx.distrust()
		c.discard.Store(true)
	case plain:
	}
	return tx, does, nil
}

// storeKey marks contexts of the store's own statements that go through database/sql.
type storeKey struct{}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	tx, does, err := c.admit(ctx, text)
	if err != nil {
		return nil, err
	}
	return tx.exec(ctx, text, args, does)
}

func (t *transaction) exec(ctx context.Context, text string, args []driver.NamedValue, does conduct) (driver.Result, error) {
	c := t.conn
	return pass(ctx, t, text, func(ctx context.Context) (driver.Result, error) {
		if !c.caches(text, args, does) {
			return c.native.ExecContext(ctx, text, args)
		}
		stmt, err := c.cache.get(ctx, c.native, text, args)
		if err != nil {
			return nil, err
		}
		result, err := stmt.ExecContext(ctx, args)
		return result, c.cache.keepUnless(err, stmt)
	})
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	tx, does, err := c.admit(ctx, text)
	if err != nil {
		return nil, err
	}
	return tx.query(ctx, text, args, does)
}

func (t *transaction) query(ctx context.Context, text string, args []driver.NamedValue, does conduct) (driver.Rows, error) {
	c := t.conn
	return ask(ctx, t, func(ctx context.Context) (driver.Rows, error) {
		if !c.caches(text, args, does) {
			return c.native.QueryContext(ctx, text, args)
		}
		stmt, err := c.cache.get(ctx, c.native, text, args)
		if err != nil {
			return nil, err
		}
		rows, err := stmt.QueryContext(ctx, args)
		return rows, c.cache.keepUnless(err, stmt)
	})
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	tx, does, err := c.admit(ctx, text)
	if err != nil {
		return nil, err
	}
	return tx.prepare(ctx, text, does)
}

func (t *transaction) prepare(ctx context.Context, text string, does conduct) (driver.Stmt, error) {
	prepared, err := pass(ctx, t, "", func(ctx context.Context) (driver.Stmt, error) { return t.conn.native.PrepareContext(ctx, text) })
	if err != nil {
		return nil, err
	}
	stmt, err := asNative(prepared)
	if err != nil {
		return nil, err
	}
	return &statement{nativeStatement: stmt, tx: t, text: text, conduct: does}, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), text)
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error { return c.native.CheckNamedValue(v) }

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error { return c.native.Ping(ctx) }

// Close implements driver.Conn.
func (c *conn) Close() error { return c.native.Close() }

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.discard.Load() {
		return driver.ErrBadConn
	}
	return c.native.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.discard.Load() && c.native.IsValid() }
