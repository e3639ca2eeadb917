package claimtx

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestArgumentsKeepEmptyApartFromNull: room that is used again has no trace of earlier arguments,
// and room that grows keeps the ones before.
func TestArgumentsKeepEmptyApartFromNull(t *testing.T) {
	t.Parallel()
	var a arguments
	long := strings.Repeat("a", 2*kept)
	for range 3 {
		values, formats := a.encode([]any{"", "first", long, int64(-7), []byte(nil), []byte{}, []byte{1}})
		want := [][]byte{{}, []byte("first"), []byte(long), []byte("-7"), nil, {}, {1}}
		for i := range want {
			if !bytes.Equal(values[i], want[i]) || (values[i] == nil) != (want[i] == nil) {
				t.Errorf("argument %d is %.20q (nil: %t)", i, values[i], values[i] == nil)
			}
		}
		if formats[1] != pgtype.TextFormatCode || formats[3] != pgtype.TextFormatCode || formats[6] != pgtype.BinaryFormatCode {
			t.Errorf("formats %v", formats)
		}
		a.clear()
		if cap(a.texts) > kept || a.values[6] != nil {
			t.Error("values are kept")
		}
	}
}
