package middleware

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/text"
)

// ErrForeignTx: the handler asked its context for a transaction that is not the attempt's, such
// as that of watermill-sql's subscriber (its TxFromContext). The handler did not get it, because
// that transaction does not commit with the message, and the attempt has failed. Use
// TxFromContext of the inbox's store. *ForeignTxError wraps it.
var ErrForeignTx = delivery.ErrForeignTx

// ForeignTxError says which transaction the handler asked its context for.
type ForeignTxError struct {
	Key string // the type of the context's key
	Tx  string // the type of the transaction

	store string
}

// Error implements error.
func (e *ForeignTxError) Error() string {
	return fmt.Sprintf("%s (a %s, under a key of type %s): what is written there does not commit with the message; use TxFromContext of the inbox's store, a %s",
		ErrForeignTx, e.Tx, e.Key, e.store)
}

// Unwrap returns ErrForeignTx.
func (e *ForeignTxError) Unwrap() error { return ErrForeignTx }

// isTx reports whether a value from a context is a transaction: of database/sql, pgx, or
// a library on top of one of them.
func isTx(value any) bool {
	switch value.(type) {
	case interface {
		Commit() error
		Rollback() error
	}, interface {
		Commit(context.Context) error
		Rollback(context.Context) error
	}:
		v := reflect.ValueOf(value)
		return v.Kind() != reflect.Pointer || !v.IsNil()
	}
	return isGormTx(value)
}

// isGormTx tells gorm's sessions with a transaction from those without. Both have one type, so it
// looks at what they work on.
func isGormTx(value any) bool {
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().String() != "*gorm.DB" {
		return false
	}
	for _, field := range []string{"Statement", "ConnPool"} {
		v = reflect.Indirect(v)
		if v.Kind() != reflect.Struct {
			return false
		}
		v = v.FieldByName(field)
	}
	return v.IsValid() && v.CanInterface() && isTx(v.Interface())
}

// foreignTx returns the error of an attempt whose handler asked for a foreign transaction, or
// nil.
func (r *running) foreignTx() error {
	asked := r.asked.Load()
	if asked == nil {
		return nil
	}
	return &ForeignTxError{asked.Key, asked.Tx, fmt.Sprintf("%T", r.inbox.store)}
}

// warnOfSubscriber warns once per consumer that its subscriber puts a transaction of its own into
// the context of messages.
func (v *visit) warnOfSubscriber() {
	if v.retry != nil || v.crowd.introduced.Load() || v.crowd.introduced.Swap(true) {
		return
	}
	if name := message.SubscriberNameFromCtx(v.arrival.Contexts.Shutdown); strings.HasPrefix(name, "sql.") {
		v.in.config.Logger.Warn("millpond: the subscriber seems to be watermill-sql's, whose transaction handlers behind the inbox do not get: use TxFromContext of the inbox's store, and see docs/watermill-sql.md",
			append(anys(v.attrs()), "subscriber", text.Word(name))...)
	}
}
