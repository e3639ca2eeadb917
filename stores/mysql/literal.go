package mysql

import (
	"encoding/hex"
	"strconv"
)

// put appends the parts of a statement that is sent together with BEGIN or COMMIT. Text stays as it
// is; values are written in forms that need no escaping: decimal for numbers, hexadecimal for
// bytes.
func put(b []byte, parts ...any) []byte {
	for _, part := range parts {
		switch v := part.(type) {
		case string:
			b = append(b, v...)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = append(b, '0')
			if v {
				b[len(b)-1] = '1'
			}
		case []byte:
			b = appendBytes(b, v)
		default:
			panic("mysql: a statement has a part of an unknown type") // a bug in this package
		}
	}
	return b
}

// appendBytes appends NULL for nil.
func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, "NULL"...)
	}
	b = append(b, 'x', '\'')
	b = hex.AppendEncode(b, v)
	return append(b, '\'')
}
