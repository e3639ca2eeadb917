package tables

import (
	"fmt"
	"time"
)

// instant scans a time. Times and intervals are read as microseconds, since their text
// depends on settings that a handler may change. NULL leaves the time as it is.
type instant struct{ t *time.Time }

// Scan implements sql.Scanner.
func (i instant) Scan(src any) error {
	switch v := src.(type) {
	case nil:
	case int64:
		*i.t = time.UnixMicro(v)
	default:
		return fmt.Errorf("a time came as %T", src)
	}
	return nil
}
