package sqlite

import (
	"database/sql/driver"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// loan is a member's connection as database/sql sees it.
type loan struct {
	*session
	sqltx.Loan
}

var (
	_ driver.ConnBeginTx       = loan{}
	_ driver.NamedValueChecker = loan{}
)

// endByHandler is called when a handler ends its transaction.
func (s *session) endByHandler() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.closing.Load() {
		return nil
	}
	s.managed = true
	return stores.ErrTxManaged
}

// lend gives each member a loan.
func (b *batch) lend() (err error) {
	for _, m := range b.own {
		m.session = &session{conn: b.conn, member: m, handling: newHandling()}
		if m.tx, err = b.store.lender.Lend(loan{m.session, sqltx.Loan{End: m.session.endByHandler}}); err != nil {
			return err
		}
	}
	return nil
}
