package claimtx

import (
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"
)

// Sizes of the texts of a statement's arguments, in bytes.
const (
	usual = 256
	kept  = 4 << 10 // what a connection keeps room for
)

// arguments is a connection's room for the encoded arguments of one statement.
type arguments struct {
	values  [][]byte
	formats []int16
	texts   []byte
}

// encode encodes arguments for the server: bytes and arrays in binary, everything else as text. The
// result is valid until clear.
func (a *arguments) encode(args []any) (values [][]byte, formats []int16) {
	if a.texts == nil {
		a.texts = make([]byte, 0, usual) // nil would make an empty text null
	}
	a.values, a.formats, a.texts = a.values[:0], a.formats[:0], a.texts[:0]
	for _, arg := range args {
		format := int16(pgtype.TextFormatCode)
		var value []byte
		switch v := arg.(type) {
		case []byte:
			value, format = v, pgtype.BinaryFormatCode
		case string:
			value = a.text(append(a.texts, v...))
		case int64:
			value = a.text(strconv.AppendInt(a.texts, v, 10))
		case [][]byte:
			value, format = bytesArray(v), pgtype.BinaryFormatCode
		case []int64:
			value, format = integerArray(v), pgtype.BinaryFormatCode
		case encoded:
			value, format = v.value, v.format
		default:
			panic("claimtx: an argument is of an unknown type") // a bug in this package
		}
		a.values, a.formats = append(a.values, value), append(a.formats, format)
	}
	return a.values, a.formats
}

// text takes texts with a new one at its end, and returns that.
func (a *arguments) text(texts []byte) []byte {
	begin := len(a.texts)
	a.texts = texts
	return texts[begin:len(texts):len(texts)]
}

// clear forgets the values, which may be a message's.
func (a *arguments) clear() {
	clear(a.values)
	if cap(a.texts) > kept {
		a.texts = nil
	}
}
