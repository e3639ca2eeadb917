package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// relatives speak the protocol, and some of them call themselves MySQL 8.0, but lack what
// the store rests on. What they lack they often accept without doing it, so that failures
// would be recorded and retried several times; hence they are known by name.
var relatives = []sqlstore.Relative{
	{Mark: "tidb", Name: "TiDB", Lacks: "FOR SHARE, and locks for SKIP LOCKED"},
	{Mark: "oceanbase", Name: "OceanBase", Lacks: "FOR SHARE"},
	{Mark: "singlestore", Name: "SingleStore", Lacks: "SKIP LOCKED"},
	{Mark: "memsql", Name: "SingleStore", Lacks: "SKIP LOCKED"},
	{Mark: "vitess", Name: "Vitess", Lacks: "a COMMIT of all shards as one"},
	{Mark: "dolt", Name: "Dolt", Lacks: "locks of rows"},
}

// relativeError refuses a server for what it is.
type relativeError struct{ sqlstore.Relative }

func (e *relativeError) Error() string {
	return fmt.Sprintf("the server is %s, which lacks %s; use MySQL %d.%d or later, or MariaDB %d.%d or later",
		e.Name, e.Lacks, oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])
}

func (e *relativeError) Is(target error) bool { return target == errUnusable }

// refuseRelatives judges @@version and @@version_comment. Percona's server, those of
// clouds, and proxies before either are MySQL and MariaDB.
func refuseRelatives(version, comment string) error {
	if r, found := sqlstore.FindRelative(relatives, version+" "+comment); found {
		return &relativeError{r}
	}
	return nil
}

// querier is a *sql.DB or a *sql.Conn.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// recognise asks the server what it is, and refuses what the store cannot run on.
func recognise(ctx context.Context, q querier) (maria bool, err error) {
	var version, comment string
	if err := q.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment").Scan(&version, &comment); err != nil {
		return false, err
	}
	return supported(version, comment)
}
