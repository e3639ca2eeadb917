package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// relatives speak the protocol, but lack what the store relies on. They accept some statements
// without effect, and would let two handlers run. So they are recognized by name.
var relatives = []sqlstore.Relative{
	{Mark: "cockroachdb", Name: "CockroachDB", Lacks: "working advisory locks, xmin and NOTIFY"},
	{Mark: "-yb-", Name: "YugabyteDB", Lacks: "xmin, and numbers in the order in which rows are written"},
	{Mark: "redshift", Name: "Amazon Redshift", Lacks: "unique keys that are enforced"},
	{Mark: "greenplum", Name: "Greenplum", Lacks: "advisory locks that hold on all segments"},
	{Mark: "materialize", Name: "Materialize", Lacks: "transactions that write and read"},
	{Mark: dsql, Name: "Aurora DSQL", Lacks: "locks before COMMIT, and savepoints"},
}

// dsql is the mark of a server that calls itself PostgreSQL.
const dsql = "aurora dsql"

// Aurora DSQL is recognized by a view of its own. The query has no operator, because some
// relatives would not understand it.
const whoAreYou = "SELECT pg_catalog.version(), pg_catalog.to_regclass('sys.iam_pg_role_mappings') IS NOT NULL"

// recognise asks the server once what it is, before anything else.
func (t *Tables) recognise(ctx context.Context) error {
	if t.anyServer || t.recognised.Load() {
		return nil
	}
	err := t.identify(ctx)
	t.recognised.Store(err == nil)
	return err
}

// identify refuses servers on which the store cannot run. Cloud services that are PostgreSQL say
// that they are.
func (t *Tables) identify(ctx context.Context) error {
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
	if !isDSQL && !strings.HasPrefix(version, "PostgreSQL ") && !strings.HasPrefix(version, "EnterpriseDB ") {
		name, _, _ := strings.Cut(version, " ")
		return fmt.Errorf("postgres: %w: it calls itself %q, which is not known here: use PostgreSQL 13 or later, or write millpond_server=any into the URL if it is PostgreSQL after all", sqlstore.ErrUnusable, name)
	}
	return nil
}
