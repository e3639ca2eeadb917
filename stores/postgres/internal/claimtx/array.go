package claimtx

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	arrayHeader = 20 // of an array with one dimension
	lengthSize  = 4  // of an element's length
	integerSize = 8
)

// bytesArray returns the binary form of a bytea[].
func bytesArray(values [][]byte) []byte {
	size := arrayHeader
	for _, v := range values {
		size += lengthSize + len(v)
	}
	to, null := beginArray(size, len(values), pgtype.ByteaOID), false
	for _, v := range values {
		if v == nil {
			to, null = binary.BigEndian.AppendUint32(to, nullLength), true
			continue
		}
		to = append(binary.BigEndian.AppendUint32(to, uint32(len(v))), v...) //nolint:gosec // small
	}
	if null {
		to[arrayHasNull] = 1
	}
	return to
}

// integerArray returns the binary form of a bigint[].
func integerArray(values []int64) []byte {
	to := beginArray(arrayHeader+len(values)*(lengthSize+integerSize), len(values), pgtype.Int8OID)
	for _, v := range values {
		to = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(to, integerSize), uint64(v)) //nolint:gosec // the bits are what matters
	}
	return to
}

const (
	nullLength   = 0xffffffff // instead of a length
	arrayHasNull = 7          // the last byte of the flag for nulls
)

// beginArray returns the header of an array with one dimension, with room for its elements.
func beginArray(size, elements int, oid uint32) []byte {
	to := make([]byte, 0, size)
	for _, field := range [...]uint32{1, 0, oid, uint32(elements), 1} { //nolint:gosec // small
		to = binary.BigEndian.AppendUint32(to, field)
	}
	return to
}
