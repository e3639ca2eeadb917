package clients

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

type gormDeposit struct {
	ID      string
	Account string
	Amount  int64
}

func (gormDeposit) TableName() string { return "deposit" }

// Gorm returns the handler with gorm.
func Gorm(db *sql.DB) (message.NoPublishHandlerFunc, error) {
	client, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		return nil, err
	}
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		session := onTx(ctx, client, tx)
		row := gormDeposit(d)
		if err := session.Create(&row).Error; err != nil {
			return err
		}
		return session.Table("account").Where("id = ?", d.Account).
			Update("balance", gorm.Expr("balance + ?", d.Amount)).Error
	}), nil
}

// onTx returns a session of gorm on a transaction that has begun. The context makes the
// session one of its own, so that setting its connection changes no other.
func onTx(ctx context.Context, client *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := client.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = tx
	return session
}
