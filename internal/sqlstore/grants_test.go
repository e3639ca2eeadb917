package sqlstore

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

var dialects = map[string]string{
	"postgres": "../../stores/postgres/internal/tables", "mysql": "../../stores/mysql", "sqlite": "../../stores/sqlite",
}

// A migration that makes a table says in rights what each role may do with it.
func TestEveryTableHasRights(t *testing.T) {
	for dialect, dir := range dialects {
		names := Names{Prefix: DefaultPrefix}
		steps := LoadMigrations(os.DirFS(dir), "migrations", names)
		shape := ShapeOf(steps)
		made := 0
		for _, step := range steps {
			made += len(regexp.MustCompile(`(?m)^CREATE TABLE`).FindAllString(step.SQL, -1))
		}
		require.Len(t, shape.Tables, made, dialect)
		for _, table := range shape.TableNames() {
			require.Contains(t, rights, strings.TrimPrefix(table, names.Prefix), "%s: what may the roles do with %s?", dialect, table)
			require.NotEmpty(t, shape.Tables[table])
		}
		tables := New(dialect, nil, steps)
		for _, right := range tables.RightsOf(stores.RoleReadOnly, names) {
			require.NotContains(t, right.String(), "payload", dialect)
			require.NotContains(t, right.Columns, "metadata", dialect)
			hides := slices.Contains(shape.Tables[right.Table], "payload") || slices.Contains(shape.Tables[right.Table], "result")
			require.Equal(t, hides, right.Columns != nil, right.Table)
		}
	}
}

func TestShape(t *testing.T) {
	steps := []stores.Migration{
		{SQL: "CREATE TABLE IF NOT EXISTS s.t (\n    a INT NOT NULL, -- first\n    `before` TEXT,\n    size INT GENERATED ALWAYS AS (1) STORED,\n    PRIMARY KEY (a),\n    UNIQUE KEY t_b (b),\n    KEY t_c (c)\n) ENGINE = InnoDB;\n\nCREATE TABLE gone (\n    a int\n);\n"},
		{SQL: "ALTER TABLE s.t\n    ADD COLUMN d INT,\n    ADD COLUMN e INT,\n    DROP COLUMN a;\n\nCREATE UNIQUE INDEX t_d ON s.t (d);\nDROP TABLE gone;\nDROP INDEX t_c;\n"},
	}
	shape := ShapeOf(steps)
	require.Equal(t, Shape{Tables: map[string][]string{"t": {"before", "size", "d", "e"}}, Indexes: []string{"t_b", "t_d"}}, shape)
	missing, more := shape.Drift(Shape{Tables: map[string][]string{"t": {"before", "size", "d", "x"}}, Indexes: []string{"t_b"}})
	require.Equal(t, []string{"column t.e", "index t_d"}, missing)
	require.Equal(t, []string{"column t.x"}, more)
}
