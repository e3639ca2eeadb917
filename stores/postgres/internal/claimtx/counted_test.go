package claimtx

import (
	"strings"
	"testing"
)

func TestStatementsThatCanBeCounted(t *testing.T) {
	t.Parallel()
	for sql, returning := range map[string]bool{
		"UPDATE t SET a = 1":                              true,
		"  -- RETURNING\ninsert into t values ($1)":       true,
		"DELETE FROM t WHERE a = ' RETURNING '; ":         true,
		"UPDATE t SET a = 1 RETURNING a":                  false,
		"WITH x AS (SELECT 1) DELETE FROM t USING x":      true,
		"WITH x AS (SELECT 1 AS n) SELECT n FROM x":       false,
		"SELECT FROM t WHERE a = $1 FOR UPDATE":           false,
		"INSERT INTO t (SELECT 1) ON CONFLICT DO NOTHING": true,
		"VALUES (1)":                         false,
		"INSERT INTO t VALUES (1); -- once":  true,
		"DELETE FROM t /* all */ ; ; /* */":  true,
		"SELECT (SELECT max(a) FROM t) -- x": false,
		`INSERT INTO "returning" VALUES (1)`: true,
	} {
		text, err := counted(sql, 3)
		if err != nil || strings.HasSuffix(strings.Split(text, "\n) SELECT")[0], "RETURNING true") != returning || !strings.Contains(text, " 3 THEN") || strings.Contains(text, "; ") {
			t.Errorf("%s: %s, %v", sql, text, err)
		}
	}
	for _, sql := range []string{"", "CREATE TABLE t ()", "SET LOCAL a = 1", "CALL p()", "LOCK TABLE t", "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE", "WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM x", "WITH x AS (\n-- all\nUPDATE t SET a = 1 RETURNING a) SELECT a FROM x"} {
		if _, err := counted(sql, 1); err == nil {
			t.Errorf("%q is counted", sql)
		}
	}
}
