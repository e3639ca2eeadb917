package clients

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// Sqlx returns the handler with sqlx. It needs no *sql.DB, but for its mapping of names.
//
// A transaction that sqlx has not begun does not know which placeholders the database
// has: write $1, or turn names into them with sqlx.Named and sqlx.Rebind as here.
func Sqlx(db *sql.DB) message.NoPublishHandlerFunc {
	client := sqlx.NewDb(db, "pgx")
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		txx := &sqlx.Tx{Tx: tx, Mapper: client.Mapper}
		insert, args, err := sqlx.Named("INSERT INTO deposit (id, account, amount) VALUES (:id, :account, :amount)", d)
		if err != nil {
			return err
		}
		if _, err := txx.ExecContext(ctx, sqlx.Rebind(sqlx.DOLLAR, insert), args...); err != nil {
			return err
		}
		var account struct {
			ID      string `db:"id"`
			Balance int64  `db:"balance"`
		}
		err = txx.GetContext(ctx, &account, "UPDATE account SET balance = balance + $1 WHERE id = $2 RETURNING id, balance", d.Amount, d.Account)
		if err != nil {
			return fmt.Errorf("account %s: %w", d.Account, err)
		}
		return nil
	})
}
