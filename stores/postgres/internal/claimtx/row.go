package claimtx

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// row is one row in the server's binary format. It implements tables.Rows.
type row struct {
	values [][]byte
	read   bool
}

// Next implements tables.Rows.
func (r *row) Next() bool {
	was := r.read
	r.read = true
	return !was
}

// Err implements tables.Rows.
func (*row) Err() error { return nil }

var errColumns = errors.New("postgres: the row has another number of columns")

// Scan implements tables.Rows, for the types that tables.DB returns.
func (r *row) Scan(into ...any) error {
	if len(into) != len(r.values) {
		return errColumns
	}
	for i, value := range r.values {
		if err := scan(value, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// scan copies the value, which belongs to the connection.
func scan(value []byte, into any) error {
	switch to := into.(type) {
	case *[]byte:
		*to = nil
		if value != nil {
			*to = append([]byte{}, value...)
		}
		return nil
	case **int64:
		if value == nil {
			return nil
		}
		*to = new(int64)
		return scan(value, *to)
	case **string:
		if value != nil {
			text := string(value)
			*to = &text
		}
		return nil
	case **bool:
		if value == nil {
			return nil
		}
		*to = new(bool)
		return scan(value, *to)
	case *bool:
		*to = len(value) == 1 && value[0] != 0
		return nil
	case *int64:
		n, err := integer(value)
		*to = n
		return err
	case *uint64:
		n, err := integer(value)
		*to = uint64(n) //nolint:gosec // the bits are what matters
		return err
	case *stores.Status:
		n, err := integer(value)
		*to = stores.Status(n) //nolint:gosec // as wide as the column's
		return err
	}
	return fmt.Errorf("postgres: a column cannot be read into a %T", into)
}

func integer(value []byte) (int64, error) {
	switch len(value) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(value))), nil //nolint:gosec // its sign
	case 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil //nolint:gosec // its sign
	case 8:
		return int64(binary.BigEndian.Uint64(value)), nil //nolint:gosec // its sign
	}
	return 0, fmt.Errorf("postgres: an integer has %d bytes", len(value))
}
