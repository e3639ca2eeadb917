package router

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// Each store's typed handler fits that store alone, whose packages may lie in each other.
func TestTypedHandlersFitTheirStore(t *testing.T) {
	onSQL := func(context.Context, *sql.Tx, *message.Message) error { return nil }
	handlers := map[string]message.NoPublishHandlerFunc{
		"stores/mysql":          mysql.Handler(onSQL),
		"stores/postgres":       postgres.Handler(func(context.Context, pgx.Tx, *message.Message) error { return nil }),
		"stores/postgres/sqldb": sqldb.Handler(onSQL),
		"stores/sqlite":         sqlite.Handler(onSQL),
		"stores/dynamodb":       dynamodb.Handler(func(context.Context, *dynamodb.Tx, *message.Message) error { return nil }),
	}
	all := map[string]stores.Store{
		"stores/mysql": &mysql.Store{}, "stores/postgres": &postgres.Store{},
		"stores/postgres/sqldb": &sqldb.Store{}, "stores/sqlite": &sqlite.Store{}, "stores/dynamodb": &dynamodb.Store{},
	}
	for made, handler := range handlers {
		for name, store := range all {
			fix := wrongStore(handler, store)
			if made == name && fix != "" || made != name && !strings.Contains(fix, "the store is of package "+name+": use ") {
				t.Errorf("a handler of %s on %s: %q", made, name, fix)
			}
		}
	}
	if fix := wrongStore(func(*message.Message) error { return nil }, all["stores/mysql"]); fix != "" {
		t.Errorf("a handler of nobody's: %q", fix)
	}
}
