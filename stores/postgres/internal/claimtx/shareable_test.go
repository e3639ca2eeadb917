package claimtx

import "testing"

func TestWhatCanBeShared(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES ($1)":                                 "",
		"insert into t values ('SET LOCAL a = 1')":                  "",
		"WITH a AS (SELECT 1) UPDATE t SET b = 1":                   "",
		"SELECT * FROM t FOR UPDATE SKIP LOCKED":                    "",
		"COPY t FROM STDIN":                                         "",
		"MERGE INTO t USING s ON true WHEN MATCHED THEN DO NOTHING": "",
		"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a":        "",
		"SELECT 1;":                        "",
		"DELETE FROM t -- all of them":     "",
		"set local statement_timeout = 1":  "SET",
		"SELECT set_config('a', $1, true)": "a setting, or a table that it creates",
		"SELECT a INTO b FROM c":           "a setting, or a table that it creates",
		"SELECT pg_Advisory_xact_lock(1)":  "an advisory lock",
		"SELECT 1; COMMIT":                 "several statements at once",
		"SELECT 'open":                     "several statements at once",
		"SAVEPOINT a":                      "SAVEPOINT",
		"ROLLBACK TO a":                    "ROLLBACK",
		"DECLARE a CURSOR FOR SELECT 1":    "DECLARE",
		"CREATE TABLE a ()":                "CREATE",
		"LOCK t":                           "LOCK",
		"DO $$ BEGIN END $$":               "DO",
		"prepared":                         "a statement called by its name",
	} {
		if got := Read(sql).Unshared; got != want {
			t.Errorf("%q: %q, want %q", sql, got, want)
		}
	}
}
