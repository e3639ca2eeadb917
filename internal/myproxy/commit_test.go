package myproxy

import "testing"

func TestEndingOf(t *testing.T) {
	alone := ending{commit: true, alone: true}
	among := ending{commit: true}
	back := ending{rollback: true}
	for sql, want := range map[string]ending{
		"commit": alone, " COMMIT ;\n": alone, "commit work": alone, "COMMIT AND NO CHAIN RELEASE": alone,
		"INSERT INTO t VALUES (1); COMMIT": among, "BEGIN; COMMIT;": among, "BEGIN; COMMIT; SELECT 1": among,
		"BEGIN NOT ATOMIC IF a THEN COMMIT; ELSE SELECT 1; END IF; END": among,
		"INSERT INTO t VALUES ('x''; commit;\\''); COMMIT":              among,
		"rollback": back, "BEGIN; ROLLBACK WORK;": back, "BEGIN; INSERT INTO t VALUES (1); ROLLBACK": back,
		"COMMIT; BEGIN; ROLLBACK": {commit: true, rollback: true},
		"ROLLBACK TO a":           {}, "commits": {}, "SELECT 'commit'": {}, "SELECT 1 AS `; commit;`": {}, "": {},
		"INSERT INTO t VALUES ('\\'; commit;')": {}, `SELECT "; commit;"`: {}, "XA COMMIT 'x'": {},
	} {
		if got := endingOf(sql); got != want {
			t.Errorf("%q: %+v, want %+v", sql, got, want)
		}
	}
}
