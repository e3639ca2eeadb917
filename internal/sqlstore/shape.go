package sqlstore

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Shape is the result of migrations: the columns of each table and the names of the indexes.
type Shape struct {
	Tables  map[string][]string
	Indexes []string
}

// ShapeOf reads the steps as they are written: one column or key per line, and one statement for
// each other index.
func ShapeOf(steps []stores.Migration) Shape {
	s := Shape{Tables: make(map[string][]string)}
	for _, step := range steps {
		for statement := range strings.SplitSeq(withoutComments(step.SQL), ";\n") {
			s.apply(strings.TrimSpace(statement))
		}
	}
	return s
}

// TableNames returns the names of the tables in alphabetical order.
func (s Shape) TableNames() []string { return slices.Sorted(maps.Keys(s.Tables)) }

var (
	comment     = regexp.MustCompile(`(?m)--.*$`)
	createTable = regexp.MustCompile(`^CREATE TABLE (?:IF NOT EXISTS )?(\S+) \(`)
	alterTable  = regexp.MustCompile(`^ALTER TABLE (\S+)`)
	addColumn   = regexp.MustCompile(`ADD COLUMN (?:IF NOT EXISTS )?(\S+)`)
	dropTable   = regexp.MustCompile(`^DROP TABLE (?:IF EXISTS )?(\S+)`)
	dropColumn  = regexp.MustCompile(`DROP COLUMN (?:IF EXISTS )?(\w+)`)
	createIndex = regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\S+) ON`)
	dropIndex   = regexp.MustCompile(`DROP INDEX (?:CONCURRENTLY )?(?:IF EXISTS )?(\S+)`)
	keyOfTable  = regexp.MustCompile(`^(?:ADD )?(?:UNIQUE )?(?:KEY|INDEX) (\w+) \(`)
	constraint  = regexp.MustCompile(`^(?:PRIMARY|UNIQUE|KEY|INDEX|CONSTRAINT|CHECK|FOREIGN)\b`)
)

func withoutComments(sql string) string { return comment.ReplaceAllString(sql, "") + "\n" }

// unqualified returns a name without its schema and quotes.
func unqualified(name string) string {
	return strings.Trim(name[strings.LastIndexByte(name, '.')+1:], "`\"")
}

func (s *Shape) apply(statement string) {
	if m := createTable.FindStringSubmatch(statement); m != nil {
		s.createTable(unqualified(m[1]), statement)
	} else if m := alterTable.FindStringSubmatch(statement); m != nil {
		s.alterTable(unqualified(m[1]), statement)
	} else if m := dropTable.FindStringSubmatch(statement); m != nil {
		delete(s.Tables, unqualified(m[1]))
	} else if m := createIndex.FindStringSubmatch(statement); m != nil {
		s.Indexes = append(s.Indexes, unqualified(m[1]))
	} else if m := dropIndex.FindStringSubmatch(statement); m != nil {
		s.dropIndex(unqualified(m[1]))
	}
}

func (s *Shape) createTable(table, statement string) {
	columns := []string{}
	for line := range strings.Lines(statement[strings.Index(statement, "\n")+1:]) {
		line = strings.TrimSpace(line)
		if m := keyOfTable.FindStringSubmatch(line); m != nil {
			s.Indexes = append(s.Indexes, m[1])
		} else if name, _, more := strings.Cut(line, " "); more && !constraint.MatchString(line) && !strings.HasPrefix(line, ")") {
			columns = append(columns, unqualified(name))
		}
	}
	s.Tables[table] = columns
}

func (s *Shape) alterTable(table, statement string) {
	for _, m := range addColumn.FindAllStringSubmatch(statement, -1) {
		if column := unqualified(m[1]); !slices.Contains(s.Tables[table], column) {
			s.Tables[table] = append(s.Tables[table], column)
		}
	}
	for _, m := range dropColumn.FindAllStringSubmatch(statement, -1) {
		s.Tables[table] = slices.DeleteFunc(s.Tables[table], func(c string) bool { return c == m[1] })
	}
	for line := range strings.Lines(statement) {
		if m := keyOfTable.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			s.Indexes = append(s.Indexes, m[1])
		}
	}
	if m := dropIndex.FindStringSubmatch(statement); m != nil {
		s.dropIndex(unqualified(m[1]))
	}
}

func (s *Shape) dropIndex(name string) {
	s.Indexes = slices.DeleteFunc(s.Indexes, func(index string) bool { return index == name })
}

// Drift returns where a database differs from the migrations. Of additional objects only columns
// matter: one that requires a value makes every INSERT fail.
func (s Shape) Drift(is Shape) (missing, more []string) {
	for _, table := range s.TableNames() {
		columns, there := is.Tables[table]
		if !there {
			missing = append(missing, "table "+table)
			continue
		}
		for _, column := range s.Tables[table] {
			if !slices.Contains(columns, column) {
				missing = append(missing, "column "+table+"."+column)
			}
		}
		for _, column := range columns {
			if !slices.Contains(s.Tables[table], column) {
				more = append(more, "column "+table+"."+column)
			}
		}
	}
	for _, index := range s.Indexes {
		if !slices.Contains(is.Indexes, index) {
			missing = append(missing, "index "+index)
		}
	}
	return missing, more
}
