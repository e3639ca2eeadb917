package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// relatives speak the protocol, and some call themselves MySQL 8.0, but they lack what the store
// relies on. They accept some statements without effect, so failures would be recorded and retried
// several times. So they are recognized by name.
var relatives = []sqlstore.Relative{
	{Mark: "oceanbase", Name: "OceanBase", Lacks: "FOR SHARE"},
	{Mark: "singlestore", Name: "SingleStore", Lacks: "SKIP LOCKED"},
	{Mark: "memsql", Name: "SingleStore", Lacks: "SKIP LOCKED"},
	{Mark: "vitess", Name: "Vitess", Lacks: "a COMMIT of all shards as one"},
	{Mark: "dolt", Name: "Dolt", Lacks: "locks of rows"},
}

// querier is a *sql.DB or a *sql.Conn.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// recognise asks the server what it is, and refuses servers on which the store cannot run.
func (s *Store) recognise(ctx context.Context, q querier) (k kind, err error) {
	k, err = s.identify(ctx, q)
	if s.config.AnyServer && errors.Is(err, sqlstore.ErrUnusable) {
		err = nil
	}
	return k, err
}

func (s *Store) identify(ctx context.Context, q querier) (k kind, err error) {
	var version, comment string
	if err := q.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment").Scan(&version, &comment); err != nil {
		return k, err
	}
	return s.supported(version, comment)
}
