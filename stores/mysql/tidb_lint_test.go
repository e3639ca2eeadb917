package mysql

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	mysql "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// noEffectOnTiDB is what TiDB takes without doing it, some of it only where
// tidb_enable_noop_functions is on, or does not take at all.
var noEffectOnTiDB = regexp.MustCompile(`(?i)SKIP LOCKED|FOR SHARE|LOCK IN SHARE MODE|^CALL |PROCEDURE|READ UNCOMMITTED|SERIALIZABLE|BEGIN NOT ATOMIC|SET STATEMENT|LOCK TABLES|READ ONLY`)

// No text of the store's for TiDB has a clause without effect there. What is really sent is
// looked at by TestConformanceOfTheDialectForTiDB.
func TestNoStatementIsWithoutEffectOnTiDB(t *testing.T) {
	t.Parallel()
	names := sqlstore.Names{Schema: "`app`", Prefix: "millpond_"}
	d := newDialect(names, kind{tidb: true})
	for word, is := range d.Words {
		assert.NotRegexp(t, noEffectOnTiDB, is, word)
	}
	var all []string
	files, err := filepath.Glob("../../internal/sqlstore/*.go")
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && !strings.HasSuffix(file, "_test.go") {
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				all = append(all, d.SQL(text))
			}
			return true
		})
	}
	require.Greater(t, len(all), 300)
	fields := reflect.ValueOf(newStatements(d)).Elem()
	for _, field := range fields.Fields() {
		all = append(all, field.String())
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		texts := newTexts(d, server{kind: kind{tidb: true}}, level)
		c := &claimed{consumer: 1, id: []byte("id"), orderKey: []byte("key"), time: 1}
		all = append(all, string(texts.claim(nil, c)), string(texts.finish(nil, c)), string(texts.lookAt(nil, 1, c.id)), texts.bound(1), texts.nowait())
		all = append(all, texts.refusals()...)
		require.False(t, texts.looksFirst(), "what commits by itself takes no lock there")
		require.Contains(t, string(texts.claim(nil, c)), "FOR UPDATE NOWAIT")
	}
	for _, text := range all {
		assert.NotRegexp(t, noEffectOnTiDB, text)
	}
	for _, taken := range []string{"SELECT 1 FROM t FOR UPDATE SKIP LOCKED", "SELECT 1 FROM t LOCK IN SHARE MODE", "CALL f()"} {
		require.Regexp(t, noEffectOnTiDB, taken)
	}
}

// What TiDB answers to COMMIT, and before.
func TestErrorsOfTiDB(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]struct{ undecided, contended bool }{
		9001: {undecided: true}, 9002: {undecided: true}, 9003: {undecided: true}, 9005: {undecided: true}, 9006: {undecided: true},
		9004: {undecided: true, contended: true}, 9007: {contended: true}, 8002: {contended: true}, 8022: {contended: true}, 8027: {contended: true}, 8028: {contended: true},
		8025: {}, 8147: {}, 1062: {}, 1105: {},
	} {
		err := error(&mysql.MySQLError{Number: number})
		assert.Equal(t, want.undecided, isUndecided(err), number)
		assert.Equal(t, want.contended, isContended(err), number)
		assert.Equal(t, want.undecided || want.contended, interruption(err), number)
	}
}
