package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

const schema = `
CREATE TABLE IF NOT EXISTS stock       (article TEXT PRIMARY KEY, quantity INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS reservation (order_id TEXT NOT NULL, article TEXT NOT NULL, quantity INTEGER NOT NULL);
DELETE FROM reservation;
DELETE FROM stock;
INSERT INTO stock VALUES ('desk', 100), ('lamp', 100);`

// prepare makes the warehouse's own tables.
func prepare(ctx context.Context, store stores.Store) (err error) {
	switch store := store.(type) {
	case *postgres.Store:
		_, err = store.Pool().Exec(ctx, schema)
	case *sqlite.Store:
		_, err = store.DB().ExecContext(ctx, schema)
	default:
		err = fmt.Errorf("store.url is of %T: this example is written for PostgreSQL and SQLite", store)
	}
	return err
}

// exec runs a statement in the transaction of the message, within a span. otelpgx and
// otelsql make such spans of everything that a driver does; here it is seen what is in them.
func (w *warehouse) exec(ctx context.Context, operation, table, statement string, args ...any) error {
	ctx, span := w.tracer.Start(ctx, operation+" "+table, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.DBOperationName(operation), semconv.DBCollectionName(table), semconv.DBQueryText(statement)))
	defer span.End()
	system, err := execute(ctx, statement, args)
	span.SetAttributes(system)
	if err != nil {
		span.SetAttributes(semconv.ErrorType(err))
		span.SetStatus(codes.Error, "")
	}
	return err
}

var parameter = regexp.MustCompile(`\$\d`)

func execute(ctx context.Context, statement string, args []any) (system attribute.KeyValue, err error) {
	if tx, ok := postgres.TxFromContext(ctx); ok {
		_, err = tx.Exec(ctx, statement, args...)
		return semconv.DBSystemNamePostgreSQL, err
	}
	var tx *sql.Tx
	var ok bool
	if tx, ok = sqlite.TxFromContext(ctx); !ok {
		return semconv.DBSystemNameOtherSQL, errors.New("there is no transaction")
	}
	_, err = tx.ExecContext(ctx, parameter.ReplaceAllString(statement, "?"), args...)
	return semconv.DBSystemNameSQLite, err
}
