package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/millpond-go/millpond/stores"
)

// loan is what database/sql believes to be a member's connection, and its transaction. That ends
// nothing: the member does.
type loan struct{ *session }

// BeginTx implements driver.ConnBeginTx.
func (l loan) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return l, nil }

// Begin implements driver.Conn; database/sql calls BeginTx.
func (l loan) Begin() (driver.Tx, error) { return l, nil }

// Close implements driver.Conn.
func (loan) Close() error { return nil }

// Commit implements driver.Tx.
func (l loan) Commit() error { return l.end() }

// Rollback implements driver.Tx.
func (l loan) Rollback() error { return l.end() }

func (l loan) end() error {
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	if l.closing.Load() {
		return nil
	}
	l.managed = true
	return stores.ErrTxManaged
}

// lend gives each member its loan.
func (b *batch) lend() (err error) {
	for _, m := range b.own {
		m.session = &session{conn: b.conn, member: m, handling: newHandling()}
		if m.tx, err = b.store.lender.Lend(loan{m.session}); err != nil {
			return err
		}
	}
	return nil
}
