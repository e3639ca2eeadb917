package mysql

import (
	"encoding/hex"
	"strconv"
)

// What is sent together with BEGIN and COMMIT is text with its values in it, in forms
// in which nothing needs to be escaped: decimal numbers, and hexadecimal for bytes.

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// appendBytes appends NULL for nil.
func appendBytes(b, v []byte) []byte {
	if v == nil {
		return append(b, "NULL"...)
	}
	b = append(b, 'x', '\'')
	b = hex.AppendEncode(b, v)
	return append(b, '\'')
}
