package tables

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// publicSchema has the tables if no other schema is configured.
const publicSchema = "public"

// Grants implements stores.Granter. The migrator owns the schema, because tables of an untrusted
// owner are not used (see home). Without a schema of its own it must own the database.
func (s Store) Grants(r stores.Role) []string {
	names := s.t.names
	role := names.Prefix + string(r)
	schema := cmp.Or(names.Schema, publicSchema)
	statements := []string{fmt.Sprintf("DO $$ BEGIN CREATE ROLE %s NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$", role)}
	if r == stores.RoleMigrator {
		if names.Schema == "" {
			return append(statements, "-- make it the owner of the database, or name a schema for millpond: millpond_schema in the URL")
		}
		return append(statements, fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %s AUTHORIZATION %s", schema, role))
	}
	statements = append(statements, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, role))
	for _, right := range s.t.shared.RightsOf(r, names) {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s.%s TO %s", right, schema, right.Table, role))
	}
	return statements
}

// lookAtGrants compares the account's rights with what its role needs.
func (t *Tables) lookAtGrants(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
	h, err := t.whereIs(ctx, t.db)
	if err != nil {
		return err
	}
	var missing, wide []string
	for _, right := range t.shared.RightsOf(x.Role, t.names) {
		table := h.schema + "." + right.Table
		for _, privilege := range right.Privileges {
			has, err := t.has(ctx, table, privilege, right.Columns)
			if err != nil {
				return err
			}
			if !has {
				missing = append(missing, privilege+" on "+table)
			}
		}
		if right.Columns != nil {
			has, err := t.has(ctx, table, "SELECT", nil)
			if err != nil {
				return err
			}
			if has {
				wide = append(wide, "read the content of "+table)
			}
		}
	}
	if len(missing) > 0 {
		add(stores.SeverityWarning, "the account lacks "+strings.Join(missing, ", "), fmt.Sprintf("the role %s needs it", x.Role), "GRANT it, as millpond roles prints it")
	}
	var super, owns bool
	if err := t.read(ctx, `SELECT r.rolsuper, EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text AND pg_has_role(c.relowner, 'USAGE')) FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`,
		[]any{h.schema, t.names.Prefix + "inbox"}, &super, &owns); err != nil {
		return err
	}
	if x.Role != stores.RoleMigrator && (super || owns) {
		wide = append([]string{"change and drop the tables"}, wide...)
	}
	if super {
		wide = append([]string{"do anything (it is a superuser)"}, wide...)
	}
	if len(wide) > 0 {
		add(stores.SeverityNote, "the account may "+strings.Join(wide, ", "), fmt.Sprintf("the role %s does not need it", x.Role), "use an account with the role that millpond roles prints")
	}
	return nil
}

func (t *Tables) has(ctx context.Context, table, privilege string, columns []string) (has bool, err error) {
	if columns == nil {
		err = t.read(ctx, "SELECT has_table_privilege($1::text, $2::text)", []any{table, privilege}, &has)
		return has, err
	}
	for _, column := range columns {
		if err := t.read(ctx, "SELECT has_column_privilege($1::text, $2::text, $3::text)", []any{table, column, privilege}, &has); err != nil || !has {
			return has, err
		}
	}
	return true, nil
}
