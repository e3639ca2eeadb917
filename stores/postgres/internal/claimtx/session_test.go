package claimtx

import "testing"

func TestWhatMarksTheSession(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"SET synchronous_commit = off":                                  true,
		"set session authorization x":                                   true,
		"SET ROLE reader":                                               true,
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY":          true,
		"select 1; set role reader":                                     true,
		"RESET ALL":                                                     true,
		"LISTEN orders":                                                 true,
		"LOAD 'auto_explain'":                                           true,
		"DISCARD TEMP":                                                  true,
		"PREPARE p AS SELECT 1":                                         true,
		"DEALLOCATE ALL":                                                true,
		"DO $$ BEGIN PERFORM 1; END $$":                                 true,
		"SELECT set_config('a.b', $1, false)":                           true,
		"SELECT set_config('a.b', 'x)', FALSE)":                         true,
		"SELECT set_config('a.b', $1, $2)":                              true,
		"SELECT pg_catalog.set_config('a.b', f(1, 2), false), true":     true,
		"SELECT pg_advisory_lock(1)":                                    true,
		"SELECT pg_try_advisory_lock_shared(1, 2)":                      true,
		"CREATE TEMP TABLE a (b text)":                                  true,
		"create or replace temporary view a as select 1":                true,
		"CREATE TEMP TABLE a (b text) ON COMMIT DELETE ROWS":            true,
		"CREATE TABLE pg_temp.a (b text)":                               true,
		"SELECT 1 AS a INTO TEMP b":                                     true,
		"DECLARE c CURSOR WITH HOLD FOR SELECT 1":                       true,
		"SELECT 'open":                                                  true,
		"SELECT 1 AS a INTO pg_temp.b":                                  true,
		"CREATE TABLE \"pg_temp\".\"b\" (a text)":                       true,
		"UPDATE pg_settings SET setting = 'off' WHERE name = $1":        true,
		"SELECT \"set_config\"('a.b', $1, false)":                       true,
		"SELECT U&\"set_\\0063onfig\"('a.b', $1, true)":                 true,
		"COPY (SELECT \"set_config\"('a.b', '', false)) TO '/dev/null'": true,
		"SELECT \"pg_advisory_lock\"(1)":                                true,
		"SELECT setseed(0.5)":                                           true,
		"SET LOCAL synchronous_commit = off":                            false,
		"SET TRANSACTION READ ONLY":                                     false,
		"SET CONSTRAINTS ALL DEFERRED":                                  false,
		"SELECT set_config('app.tenant', $1, true)":                     false,
		"SELECT set_config('app.tenant', coalesce($1, 'a, b'), TRUE) ":  false,
		"SELECT pg_advisory_xact_lock(1)":                               false,
		"CREATE TEMP TABLE a (b text) ON COMMIT DROP":                   false,
		"CREATE TEMPORARY TABLE a ON COMMIT DROP AS SELECT 1":           false,
		"SELECT temp FROM sensor WHERE temporary":                       false,
		"INSERT INTO temp (a) VALUES (1)":                               false,
		"UPDATE t SET a = 1 WHERE hold AND set":                         false,
		"INSERT INTO t VALUES ('SET ROLE x; set_config(1)')":            false,
		"SELECT * FROM t WHERE a ~ '\\d+'":                              false,
		"DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1":                    false,
		"CREATE TABLE t (a text); CREATE INDEX ON t (a)":                false,
		"CALL settle($1)":                                               false,
		"WITH a AS (SELECT 1) SELECT * FROM a -- SET ROLE":              false,
		"SELECT \"set_config\"('app.tenant', $1, true)":                 false,
		"SELECT a AS \"set_b\", b AS \"temp\" FROM t":                   false,
		"SELECT u & \"a\", U&'\\0063' FROM t":                           false,
		"WITH \"hold\" AS (SELECT 1) SELECT 1":                          false,
		"":                                                              false,
	} {
		if r := Read(sql); r.Session != want {
			t.Errorf("%q: %+v", sql, r)
		}
	}
}
