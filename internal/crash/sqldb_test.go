package crash

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// newSQLDB is a database behind a proxy, on a server that all tests share.
func newSQLDB(t *testing.T) *system {
	t.Helper()
	return onPostgres(t, "postgres+sql", testenv.VolatilePostgres(t).NewDatabase(t)).behindProxy(t)
}

// newFragileSQLDB is the same on a server of its own, which may be hurt.
func newFragileSQLDB(t *testing.T) *system {
	t.Helper()
	return onPrivatePostgres(t, "postgres+sql").behindProxy(t)
}

// newPQ is for a *sql.DB that the store knows nothing of. What a handler commits by
// itself there is committed: stores.Capabilities.CommitUnproven.
func newPQ(t *testing.T) *system {
	t.Helper()
	return onPostgres(t, "lib/pq", testenv.VolatilePostgres(t).NewDatabase(t)).withoutWatch().behindProxy(t)
}

// withoutWatch leaves out what only a store notices that sees each statement.
func (s *system) withoutWatch() *system {
	s.dialect.without = append([]conduct{commits, settings}, s.dialect.without...)
	return s
}

func newFragilePQ(t *testing.T) *system {
	t.Helper()
	return onPrivatePostgres(t, "lib/pq").withoutWatch().behindProxy(t)
}

// openSQLDB opens a store on a connector of its package.
func openSQLDB(_ context.Context, rawURL string, worker int) (*backend, error) {
	rawURL = ofWorker(rawURL, modes, worker)
	config, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.Tracer = noLocalTime{}
	return sqldbBackend(sql.OpenDB(sqldb.NewConnector(config)), rawURL)
}

// openPQ opens a store on a *sql.DB of lib/pq.
func openPQ(_ context.Context, rawURL string, worker int) (*backend, error) {
	parameters := map[string]string{"connect_timeout": "2"}
	if worker%2 == 1 {
		parameters["binary_parameters"] = "yes" // nothing is prepared then
	}
	db, err := sql.Open("postgres", withParameters(rawURL, parameters))
	if err != nil {
		return nil, err
	}
	return sqldbBackend(db, rawURL)
}

func sqldbBackend(db *sql.DB, rawURL string) (*backend, error) {
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		return nil, err
	}
	plain, err := sql.Open("pgx", rawURL)
	if err != nil {
		return nil, err
	}
	b := sqlBackend(store, plain, postgresDialect, sqldb.Handler, sqldb.TxFromContext)
	b.close = func() { _, _ = plain.Close(), db.Close() }
	return b, nil
}
