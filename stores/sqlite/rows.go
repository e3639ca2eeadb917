package sqlite

import (
	"bytes"
	"context"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// send sends a statement, and tells empty bytes in its rows from NULL.
func send(ctx context.Context, to sqlstore.Conn, s sqlstore.Statement) (int64, error) {
	if read := s.Read; read != nil {
		s.Read = func(rows sqlstore.Rows) error { return read(exactRows{rows}) }
	}
	return sqlstore.Send(ctx, to, s)
}

// exactRows return empty bytes as empty bytes. The driver returns nil for them, as for NULL.
type exactRows struct{ sqlstore.Rows }

// Scan implements sqlstore.Rows.
func (r exactRows) Scan(into ...any) error {
	exact := make([]any, len(into))
	for i, dest := range into {
		if b, ok := dest.(*[]byte); ok {
			dest = (*blob)(b)
		}
		exact[i] = dest
	}
	return r.Rows.Scan(exact...) //nolint:wrapcheck // the driver's own error
}

// blob reads the bytes of a column unchanged.
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*b = nil
	case []byte:
		if *b = bytes.Clone(v); *b == nil {
			*b = blob{}
		}
	case string:
		*b = blob(v)
	default:
		return errors.New("sqlite: the column has no bytes")
	}
	return nil
}
