package claimtx

import "testing"

func TestLiteral(t *testing.T) {
	t.Parallel()
	args := []any{int64(-3), []byte("a'\\"), []byte(nil), int64(-1) << 62, "1000", "a'b", []byte{}}
	for text, want := range map[string]string{
		"SELECT $1":     "SELECT (-3)::bigint",
		"SELECT $2, $3": "SELECT pg_catalog.decode('61275c', 'hex'), NULL::pg_catalog.bytea",
		"SELECT $4":     "SELECT (-4611686018427387904)::bigint",
		"SELECT $5":     "SELECT '1000'",
		"SELECT $6, $9": "SELECT pg_catalog.convert_from(pg_catalog.decode('612762', 'hex'), 'UTF8'), $9", // there is none: the server refuses it
		"SELECT $7":     "SELECT pg_catalog.decode('', 'hex')",
	} {
		if got := Literal(text, args); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
