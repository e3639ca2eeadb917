package clients

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// entDriver is the driver of an ent client on the transaction of the inbox. Ent begins a
// transaction where it needs several statements: there it goes on in this one.
type entDriver struct{ dialect.Driver }

func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func entOnTx(tx *sql.Tx) dialect.Driver {
	return entDriver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}
}

// Ent returns the handler with ent. A generated client takes the same driver, by
// ent.NewClient(ent.Driver(entOnTx(tx))); here stands what its methods do with it, so that
// nothing has to be generated.
func Ent() message.NoPublishHandlerFunc {
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		driver := entOnTx(tx)
		deposit := sqlgraph.NewCreateSpec("deposit", sqlgraph.NewFieldSpec("id", field.TypeString))
		deposit.ID.Value = d.ID
		deposit.SetField("account", field.TypeString, d.Account)
		deposit.SetField("amount", field.TypeInt64, d.Amount)
		if err := sqlgraph.CreateNode(ctx, driver, deposit); err != nil {
			return err
		}
		account := sqlgraph.NewUpdateSpec("account", []string{"id", "balance"}, sqlgraph.NewFieldSpec("id", field.TypeString))
		account.Node.ID.Value = d.Account
		account.AddField("balance", field.TypeInt64, d.Amount)
		account.Assign = func([]string, []any) error { return nil }
		account.ScanValues = func([]string) ([]any, error) { return []any{new(sql.NullString), new(sql.NullInt64)}, nil }
		return sqlgraph.UpdateNode(ctx, driver, account)
	})
}
