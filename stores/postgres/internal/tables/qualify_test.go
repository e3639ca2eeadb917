package tables

import "testing"

func TestQualify(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT now()": "SELECT pg_catalog.now()",
		"SELECT a FROM t WHERE a = $1 AND b <> 'x=y'":                      "SELECT a FROM t WHERE a OPERATOR(pg_catalog.=) $1 AND b OPERATOR(pg_catalog.<>) 'x=y'",
		"UPDATE t SET a = b + 1, c = (d = e) WHERE f = 1":                  "UPDATE t SET a = b OPERATOR(pg_catalog.+) 1, c = (d OPERATOR(pg_catalog.=) e) WHERE f OPERATOR(pg_catalog.=) 1",
		"SELECT count(*), f.* FROM f":                                      "SELECT pg_catalog.count(*), f.* FROM f",
		"SELECT (extract(epoch from a) * 2)::bigint":                       "SELECT (extract(epoch from a) OPERATOR(pg_catalog.*) 2)::bigint",
		"SELECT a::text, b::text[], c::bit(64)::bigint, d::pg_catalog.xid": "SELECT a::pg_catalog.text, b::pg_catalog.text[], c::bit(64)::bigint, d::pg_catalog.xid",
		"SELECT a || b || c -- = d":                                        "SELECT a OPERATOR(pg_catalog.||) b OPERATOR(pg_catalog.||) c -- = d",
		"SELECT @a::text, b @> ARRAY[@c::text]":                            "SELECT @a::pg_catalog.text, b OPERATOR(pg_catalog.@>) ARRAY[@c::pg_catalog.text]",
		`SELECT s.f(), "s".g (a) FROM t (a) ORDER BY a COLLATE "C"`:        `SELECT s.f(), "s".g (a) FROM t (a) ORDER BY a COLLATE pg_catalog."C"`,
		"SELECT a = ANY (ARRAY(SELECT 1)), position(a IN b) > 0":           "SELECT a OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT 1)), position(a IN b) OPERATOR(pg_catalog.>) 0",
		"SELECT CASE WHEN a = 1 THEN 2 END - 1":                            "SELECT CASE WHEN a OPERATOR(pg_catalog.=) 1 THEN 2 END OPERATOR(pg_catalog.-) 1",
	} {
		if got := qualify(sql); got != want {
			t.Errorf("%s\nis   %s\nwant %s", sql, got, want)
		}
	}
}

func TestQualifyRefusesWhatItWouldChangeOrCannotName(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"SELECT a = b + c", "SELECT a * b + c", "SELECT a = b = c", "SELECT a < b || c",
		"SELECT nullif(a, b)", "SELECT CASE a WHEN 1 THEN 2 END", "SELECT a IN (1, 2)", "SELECT a BETWEEN 1 AND 2",
		"SELECT a IS DISTINCT FROM b", "SELECT a LIKE 'b'", "SELECT 1 FROM a JOIN b USING (c)", "SELECT = 1", "SELECT a)",
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was qualified", sql)
				}
			}()
			qualify(sql)
		}()
	}
}
