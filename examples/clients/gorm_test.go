package clients_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

type gormKey struct{}

// TestGormInTheContext has a middleware around the inbox put gorm into the context of
// messages: its client is given to the handler, a transaction of it is not.
func TestGormInTheContext(t *testing.T) {
	db := newDatabase(t)
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	begun := client.Begin()
	defer begun.Rollback()
	for name, test := range map[string]struct {
		value *gorm.DB
		given bool
	}{
		"client":                        {client, true},
		"session":                       {client.Session(&gorm.Session{}), true},
		"transaction":                   {begun, false},
		"transaction with statements":   {begun.Session(&gorm.Session{PrepareStmt: true}), false},
		"session in that transaction":   {begun.Session(&gorm.Session{}), false},
		"condition on that transaction": {begun.Where("id = 1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			ends := &failures{}
			inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "bank", Handler: "gorm", Hooks: []middleware.Hook{ends}})
			if err != nil {
				t.Fatal(err)
			}
			msg := message.NewMessage(name, nil)
			msg.SetContext(context.WithValue(t.Context(), gormKey{}, test.value))
			_, err = inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if _, given := msg.Context().Value(gormKey{}).(*gorm.DB); given != test.given {
					t.Errorf("given: %t, want %t", given, test.given)
				}
				return nil, nil
			})(msg)
			if err != nil || errors.Is(ends.last(), middleware.ErrForeignTx) == test.given {
				t.Errorf("%v, ended with %v", err, ends.last())
			}
		})
	}
}
