package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// home is the schema that has the tables, according to the server's catalog. A role that may create
// objects in a schema of the search_path can use the name of one of our tables, for a view or for a
// table with a trigger, whose code would run with the rights of its readers or writers. So none of
// these relations is read before the catalog has told who owns it.
type home struct {
	schema string // "": no tables

	// The first relation named like a millpond table that is not trusted; "": all are trusted.
	name, kind, owner string
	trigger           string // a trigger whose function another role owns
}

func (h *home) dest() []any { return []any{&h.schema, &h.name, &h.kind, &h.owner, &h.trigger} }

// plantedError refuses a relation because of its owner or its kind.
type plantedError struct{ home }

func (e *plantedError) Error() string {
	text := fmt.Sprintf("postgres: %q.%q is not used: ", e.schema, e.name)
	switch {
	case e.kind != "r" && e.kind != "p":
		return text + fmt.Sprintf("it is not a table but a relation of the kind %q, of the role %q, and no migration made it", e.kind, e.owner)
	case e.trigger != "":
		return text + fmt.Sprintf("its trigger %q runs a function of another role", e.trigger)
	}
	return text + fmt.Sprintf("it belongs to the role %q, which owns neither the schema nor the database, is no superuser, "+
		"and none that this role is or is a member of. Give it to the schema's owner if it is millpond's, and drop it if not; "+
		"a superuser looks at the tables of others as their owner, with options=-crole%%3D<owner> in the URL", e.owner)
}

func isPlanted(err error) bool {
	_, planted := errors.AsType[*plantedError](err)
	return planted
}

func (h *home) check() error {
	if h.name != "" {
		return &plantedError{*h}
	}
	return nil
}

// whereIs asks for the schema that has the tables; see homeIs.
func (t *Tables) whereIs(ctx context.Context, db Querier) (h home, err error) {
	found := false
	text, args := t.homeIs()
	if _, err := db.Send(ctx, Statement{Text: qualify(text), Args: args, Read: first(&found, h.dest()...)}); err != nil {
		return h, err
	}
	return h, h.check()
}

var tableNames = []string{"schema", "consumer", "inbox", "quarantine", "failure", "audit", "outbox", "outbox_history", "outbox_failed", "lease", "process", "once"}

// homeIs returns the query for a home: the configured schema, or the first in the search_path that
// has the table of versions. Temporary tables, which every name would find first, do not count.
func (t *Tables) homeIs() (text string, args []any) {
	names := make([]string, len(tableNames))
	for i, name := range tableNames {
		names[i] = t.names.Prefix + name
	}
	named := "n.nspname <> current_user"
	where := "n.nspname = ANY (current_schemas(false)) ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1"
	args = []any{t.names.Prefix + "schema", strings.Join(names, ",")}
	if t.names.Schema != "" {
		where, named = "n.nspname = $3::text", "true"
		args = append(args, t.names.Schema)
	}
	return strings.NewReplacer("WHERE_IT_IS", where, "CONFIGURED_OR_NOT_OURS", named).Replace(homeOf), args
}

// The owner of a schema is trusted with what is in it. If the schema is named after another role,
// which then has it first in its search_path ("$user"), its owner is trusted only if the schema is
// configured. A superuser is a member of all roles; that does not make them trusted.
func trusts(role string) string {
	return strings.ReplaceAll(`(ROLE.rolsuper OR ROLE.rolname = current_user OR ROLE.oid = d.datdba
OR (ROLE.oid = n.nspowner AND CONFIGURED_OR_NOT_OURS)
OR (NOT (SELECT me.rolsuper FROM pg_catalog.pg_roles me WHERE me.rolname = current_user) AND pg_has_role(ROLE.oid, 'MEMBER')))`, "ROLE", role)
}

var homeOf = `SELECT home.nspname, coalesce(planted.name, ''), coalesce(planted.kind, ''), coalesce(planted.owner, ''), coalesce(planted.tgname, '')
FROM (SELECT n.nspname::text, n.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1::text AND c.relpersistence <> 't' AND WHERE_IT_IS) home
LEFT JOIN LATERAL (SELECT c.relname::text AS name, c.relkind::text AS kind, o.rolname::text AS owner, g.tgname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles o ON o.oid = c.relowner JOIN pg_catalog.pg_database d ON d.datname = current_database()
LEFT JOIN LATERAL (SELECT t.tgname::text FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
JOIN pg_catalog.pg_roles r ON r.oid = f.proowner
WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND NOT ` + trusts("r") + ` LIMIT 1) g ON true
WHERE n.oid = home.oid AND c.relname::text = ANY (string_to_array($2::text, ','))
AND (NOT (c.relkind::text = 'r' OR c.relkind::text = 'p') OR g.tgname IS NOT NULL OR NOT ` + trusts("o") + `) LIMIT 1) planted ON true`

// inSchema returns the qualified names of the tables.
func (t *Tables) inSchema(schema string) sqlstore.Names {
	return sqlstore.Names{Schema: pgx.Identifier{schema}.Sanitize(), Prefix: t.names.Prefix}
}
