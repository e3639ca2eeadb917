package tables

import (
	"context"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// relatives speak the protocol, but lack what the store rests on. Some of it they accept
// without doing it, so that two handlers would run; hence they are known by name.
var relatives = []sqlstore.Relative{
	{Mark: "cockroachdb", Name: "CockroachDB", Lacks: "advisory locks that lock, xmin and NOTIFY"},
	{Mark: "-yb-", Name: "YugabyteDB", Lacks: "xmin, and numbers in the order in which rows are written"},
	{Mark: dsql, Name: "Aurora DSQL", Lacks: "locks before COMMIT, and savepoints"},
}

// dsql marks a server that does not call itself anything but PostgreSQL in its version.
const dsql = "aurora dsql"

// Aurora DSQL is known by a view of its own. There is no operator in this, which not all of
// them would understand.
const whoAreYou = "SELECT pg_catalog.version(), pg_catalog.to_regclass('sys.iam_pg_role_mappings') IS NOT NULL"

// recognise asks the server once what it is, before anything else, and refuses what the
// store cannot run on. The servers of clouds that are PostgreSQL say so.
func (t *Tables) recognise(ctx context.Context) error {
	if t.recognised.Load() {
		return nil
	}
	var (
		found, isDSQL bool
		version       string
	)
	if _, err := t.db.Send(ctx, Statement{Text: whoAreYou, Read: first(&found, &version, &isDSQL)}); err != nil {
		return Unavailable(err)
	}
	if isDSQL {
		version = dsql
	}
	if err := sqlstore.RefuseRelatives(relatives, version, "PostgreSQL 13 or later"); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	t.recognised.Store(true)
	return nil
}
