package mysql_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millpond-go/millpond/stores/mysql"
)

func TestStatementsAreJudgedByTheirBeginning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SELECT 1":                                 "plain",
		" insert into t values (';COMMIT')":        "plain",
		"(SELECT 1) UNION (SELECT 2)":              "plain",
		"/* rollback */ UPDATE t SET a = 1":        "plain",
		"-- commit\nDELETE FROM t":                 "plain",
		"# commit\nREPLACE INTO t VALUES (1)":      "plain",
		"WITH a AS (SELECT 1) SELECT * FROM a":     "plain",
		"SAVEPOINT a":                              "plain",
		"RELEASE SAVEPOINT a":                      "plain",
		"ROLLBACK TO SAVEPOINT a":                  "plain",
		"rollback work to a":                       "plain",
		"SELECT GET_LOCK('a', 0)":                  "marks",
		"DO get_lock('a', 0)":                      "marks",
		"SELECT @tenant := 5":                      "marks",
		"SELECT n INTO @n FROM t":                  "marks",
		"SELECT get_lock /* now */ ('a', 0)":       "marks",
		"SELECT 1+GET_LOCK('a', 0)":                "marks",
		"SELECT `get_lock`('a', 0)":                "marks",
		"SELECT /*!50000 GET_LOCK( */ 'a', 0)":     "marks",
		"SELECT /*!99999 @a */ 1":                  "marks",
		"SELECT 5--@a":                             "marks", // no comment without a space
		"SELECT 1 /* a */, @a":                     "marks",
		"SELECT 1 -- it's\n, @a":                   "marks",
		"SELECT /* never ends @a":                  "plain",
		"SELECT @@sql_mode, '@a', \"GET_LOCK\"":    "plain",
		"SELECT target_lock FROM t":                "plain",
		"UPDATE t SET target_locked = 1":           "plain",
		"SELECT budget_lock(1), get_locks(2)":      "plain",
		"SELECT get_lock FROM t":                   "plain",
		"SELECT `get_lock` FROM t":                 "plain",
		"SELECT é_get_lock(1), éget_lock(1)":       "plain",
		"SELECT 1 /* by anna@shop, GET_LOCK() */":  "plain",
		"SELECT 1 -- by anna@shop":                 "plain",
		"SELECT 1 --":                              "plain",
		"SELECT 1 # by anna@shop\n, 2":             "plain",
		"SELECT /*+ MAX_EXECUTION_TIME(9) @q */ 1": "plain",
		"INSERT INTO t VALUES ('o\\'neill@a.b')":   "plain",
		"COMMIT":                                   "ends",
		"commit;":                                  "ends",
		";COMMIT":                                  "ends",
		"\n\t/* a */ -- b\n /* c */ CoMmIt work":   "ends",
		"/*!50000 COMMIT */":                       "ends",
		"/*M!100000 COMMIT */":                     "ends",
		"/*! */ COMMIT":                            "ends",
		"ROLLBACK":                                 "ends",
		"ROLLBACK AND CHAIN":                       "ends",
		"BEGIN NOT ATOMIC COMMIT; END":             "ends",
		"START TRANSACTION READ ONLY":              "ends",
		"XA COMMIT 'a'":                            "ends",
		"CREATE TABLE t (a INT)":                   "ends",
		"CREATE OR REPLACE TABLE t (a INT)":        "ends",
		"DROP TABLE t":                             "ends",
		"TRUNCATE t":                               "ends",
		"LOCK TABLES t READ":                       "ends",
		"SET autocommit = 1":                       "ends",
		"SET @@session.AutoCommit = 1":             "ends",
		"/*!99999 SELECT */ COMMIT":                "unclear",
		"/*M!999999 SELECT 1; */ COMMIT":           "unclear",
		"/*!50000 SELECT 1 */":                     "unclear",
		"ROLLBACK /*!99999 TO */":                  "unclear",
		"CREATE TEMPORARY TABLE t (a INT)":         "unclear",
		"CREATE OR REPLACE TEMPORARY TABLE t (a)":  "unclear",
		"SET sql_mode = ''":                        "unclear",
		"CALL p()":                                 "unclear",
		"EXECUTE s":                                "unclear",
		"USE other":                                "unclear",
		"/* never ends":                            "unclear",
		"":                                         "unclear",
	} {
		assert.Equal(t, want, mysql.Judge(text, false), "%q", text)
	}
}

func TestBackslashesEscapeNothingWhereTheServerSaysSo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`SELECT 'a\', @tenant := 5`:            "marks",
		`INSERT INTO t VALUES ('a\', 'b@c.d')`: "plain",
	} {
		assert.Equal(t, want, mysql.Judge(text, true), "%q", text)
	}
}
