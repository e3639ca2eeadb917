package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"

	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// plainTx is a transaction on a caller's *sql.DB, with its connection.
type plainTx struct {
	conn    *sql.Conn
	tx      *sql.Tx
	cancel  context.CancelFunc // ends the transaction's context
	session claimtx.Session
	socket  net.Conn // with pgx only; other drivers do not expose it
}

// finish ends the transaction and gives the connection back. ctx bounds it as far as the driver
// honors contexts: database/sql's own calls take none.
func (t *plainTx) finish(ctx context.Context, e *ending, how func(*sql.Tx) error) error {
	stop := context.AfterFunc(ctx, t.cancel)
	err := how(t.tx)
	stop()
	t.cancel()
	_ = t.conn.Raw(func(driverConn any) error {
		native, ok := driverConn.(pgxConn)
		if e.abandoned.Load() || ok && t.session.Changed(native.Conn().PgConn()) {
			return driver.ErrBadConn // database/sql then closes it: see claimtx.Session
		}
		return nil
	})
	if closeErr := t.conn.Close(); err == nil && !errors.Is(closeErr, sql.ErrConnDone) {
		err = closeErr
	}
	return err
}

// cut ends what a goroutine of the handler still does with the connection, as far as the driver
// can.
func (t *plainTx) cut() {
	t.cancel()
	if t.socket != nil {
		_ = t.socket.Close()
	}
}

// txStatus is the driver's view of the transaction.
type txStatus uint8

const (
	unknownStatus txStatus = iota // the driver does not say
	running
	aborted
	ended
	busy // with open rows
	lost // lost with the connection
)

// status asks pgx. Other drivers check the transaction in Commit or not at all; of them only a lost
// connection is known.
func (t *plainTx) status() (status txStatus) {
	_ = t.conn.Raw(func(driverConn any) error {
		native, ok := driverConn.(pgxConn)
		if !ok {
			if v, ok := driverConn.(driver.Validator); ok && !v.IsValid() {
				status = lost
			}
			return nil
		}
		switch pg := native.Conn().PgConn(); {
		case pg.IsClosed():
			status = lost
		case pg.IsBusy():
			status = busy
		case pg.TxStatus() == 'T':
			status = running
		case pg.TxStatus() == 'E':
			status = aborted
		case pg.TxStatus() == 'I':
			status = ended
		}
		return nil
	})
	return status
}
