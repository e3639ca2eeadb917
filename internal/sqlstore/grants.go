package sqlstore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

const (
	reads  = "SELECT"
	all    = "SELECT, INSERT, UPDATE, DELETE"
	writes = "SELECT, INSERT, UPDATE"
)

// rights are the roles' rights on a table, by its name without the prefix. A test fails if a
// migration's table is missing here.
var rights = map[string]struct{ runtime, operator string }{
	"schema":         {reads, reads},
	"consumer":       {writes, reads},
	"inbox":          {all, writes},
	"failure":        {all, all},
	"quarantine":     {all, writes},
	"audit":          {"SELECT, INSERT, DELETE", "SELECT, INSERT"},
	"process":        {all, reads},
	"once":           {all, all},
	"outbox":         {all, all},
	"outbox_history": {all, "SELECT, UPDATE, DELETE"}, // UPDATE: to lock rows
	"outbox_failed":  {all, all},
	"outbox_lock":    {"SELECT, UPDATE", "SELECT, UPDATE"},
	"lease":          {all, reads},
}

// contents are the columns with messages' content.
var contents = []string{"payload", "metadata", "facts", "result"}

// IsContent reports whether a column has messages' content.
func IsContent(column string) bool { return slices.Contains(contents, column) }

// Right is a role's right on a table.
type Right struct {
	Table      string   // with the prefix
	Privileges []string // such as SELECT
	Columns    []string // nil: all
}

// String returns the right as in GRANT, before ON.
func (r Right) String() string {
	if r.Columns == nil {
		return strings.Join(r.Privileges, ", ")
	}
	return fmt.Sprintf("%s (%s)", strings.Join(r.Privileges, ", "), strings.Join(r.Columns, ", "))
}

// RightsOf returns what a role needs on the migrations' tables. The migrator owns them, and needs
// nothing.
func (t *Tables) RightsOf(role stores.Role, names Names) []Right {
	shape := ShapeOf(t.migrations)
	var needed []Right
	for _, table := range shape.TableNames() {
		r := Right{Table: table}
		may := rights[strings.TrimPrefix(table, names.Prefix)]
		switch role {
		case stores.RoleRuntime:
			r.Privileges = strings.Split(may.runtime, ", ")
		case stores.RoleOperator:
			r.Privileges = strings.Split(may.operator, ", ")
		case stores.RoleReadOnly:
			r.Privileges = []string{reads}
			if columns := shape.Tables[table]; slices.ContainsFunc(columns, IsContent) {
				r.Columns = slices.DeleteFunc(slices.Clone(columns), IsContent)
			}
		default:
			return nil
		}
		needed = append(needed, r)
	}
	return needed
}
