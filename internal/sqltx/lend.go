package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// Lender gives each member of a batch a *sql.Tx of its own on their shared connection. The end of
// one, and goroutines that go on using it, must not affect the next member. The zero value is ready
// to use, and safe for concurrent use.
type Lender struct {
	mu sync.Mutex
	db *sql.DB
}

// Lend returns a *sql.Tx that passes a member's statements on to the connection. to is a
// driver.ConnBeginTx whose transactions end with the *sql.Tx.
func (l *Lender) Lend(to driver.Conn) (*sql.Tx, error) {
	return l.lender().BeginTx(context.WithValue(context.Background(), lentKey{}, to), nil)
}

func (l *Lender) lender() *sql.DB {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil {
		l.db = sql.OpenDB(lender{})
		l.db.SetMaxIdleConns(-1) // each loan is used once
	}
	return l.db
}

// Close refuses further loans.
func (l *Lender) Close() error { return l.lender().Close() }

// Loan implements what a lent connection has besides statements: a transaction whose end only calls
// End, because the member ends the real one.
type Loan struct{ End func() error }

var _ driver.Tx = Loan{}

// BeginTx implements driver.ConnBeginTx.
func (l Loan) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return l, nil }

// Begin implements driver.Conn; database/sql calls BeginTx.
func (l Loan) Begin() (driver.Tx, error) { return l, nil }

// Close implements driver.Conn.
func (Loan) Close() error { return nil }

// Commit implements driver.Tx.
func (l Loan) Commit() error { return l.End() }

// Rollback implements driver.Tx.
func (l Loan) Rollback() error { return l.End() }

type lentKey struct{}

// lender is a driver whose connections are the loans.
type lender struct{}

// Connect implements driver.Connector.
func (lender) Connect(ctx context.Context) (driver.Conn, error) {
	if to, ok := ctx.Value(lentKey{}).(driver.Conn); ok {
		return to, nil
	}
	return nil, errors.New("sqltx: nothing is lent")
}

// Driver implements driver.Connector.
func (l lender) Driver() driver.Driver { return l }

// Open implements driver.Driver.
func (l lender) Open(string) (driver.Conn, error) { return l.Connect(context.Background()) }
