package sqldb_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
	"github.com/millpond-go/millpond/stores/storetest"
)

// The ways in which a program comes to a *sql.DB.
var (
	connector = entry{name: "connector", open: sqldb.OpenDB}
	callersPG = entry{name: "pgx", open: openDriver("pgx"), callers: true, config: sqldb.Config{ProveCommit: true}}
	callersPQ = entry{name: "pq", open: openDriver("postgres"), callers: true, config: sqldb.Config{ProveCommit: true}}
)

type entry struct {
	name    string
	open    func(address string) (*sql.DB, error)
	callers bool
	pooled  []string // parameters of the URL behind PgBouncer; nil: there is none
	config  sqldb.Config
	groups  []string // on its day, unless all are asked for
}

func openDriver(name string) func(string) (*sql.DB, error) {
	return func(address string) (*sql.DB, error) { return sql.Open(name, address) }
}

// behindPgBouncer is the entry behind a pooler in transaction mode.
func (e entry) behindPgBouncer(parameters ...string) entry {
	e.name += " behind PgBouncer"
	e.pooled = parameters
	return e
}

// unproven is the entry without the trip that proves commits.
func (e entry) unproven() entry {
	e.name += " unproven"
	e.config.ProveCommit = false
	return e
}

// some lets only groups be checked when it is the entry's turn. The rest is the same in all
// entries.
func (e entry) some(groups ...string) entry {
	e.groups = groups
	return e
}

func TestConformance(t *testing.T) {
	t.Run(connector.name, func(t *testing.T) {
		t.Parallel()
		h := connector.harness()
		h.Groups = append([]string{"claim", "inbox"}, rotation.OnStore(t, "postgres+sql", storetest.GroupNames()...)...)
		storetest.Run(t, h)
	})
	for _, e := range some(t, 1,
		connector.behindPgBouncer("pgbouncer", "transaction").some("claim", "resolve", "inbox"),
		callersPG.behindPgBouncer("default_query_exec_mode", "cache_describe").some("claim"),
		callersPQ.behindPgBouncer("binary_parameters", "yes").some("claim", "due"),
		callersPG.some("claim", "statement", "act"),
		callersPG.unproven().some("claim", "act"),
		callersPQ.some("claim", "ids", "due", "record", "inspect", "change", "quarantine", "registry", "statement", "act"),
		callersPQ.unproven().some("claim", "act"),
	) {
		if rotation.Soak() {
			e.groups = nil
		}
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, e.harness())
		})
	}
}

func (e entry) harness() storetest.Harness {
	return storetest.Harness{
		NewDatabase: func(tb testing.TB) *storetest.Database {
			tb.Helper()
			address := testenv.VolatilePostgres(tb).NewDatabase(tb)
			if e.pooled == nil { // it takes no such parameter
				address = pgtest.Impatient(tb, address)
			}
			return e.database(tb, address)
		},
		NewServer: e.newServer(),
		Write: func(ctx context.Context, effect storetest.Effect) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES ($1, $2, $3)",
					effect.Key, effect.Label, effect.Run)
				return err
			})
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return sqldb.Handler(func(ctx context.Context, _ *sql.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Transact:      transact,
		Ways:          e.ways(),
		Acts:          e.acts(),
		Lacks:         e.lacks(),
		Unpreventable: e.unpreventable(),
		NoBatches:     e.noBatches(),
		Groups:        e.groups,
	}
}

func (e entry) noBatches() string {
	if e.callers {
		return "they need connections of the store's own"
	}
	return ""
}

// newServer is nil where a pooler would have to be told of a new address.
func (e entry) newServer() func(testing.TB) *storetest.Database {
	if e.pooled != nil {
		return nil
	}
	return e.server
}

func (e entry) database(tb testing.TB, address string) *storetest.Database {
	tb.Helper()
	db := pgtest.NewDatabase(tb, address)
	config := e.config
	if e.pooled != nil {
		address = pgtest.WithParameters(tb, testenv.PgBouncer(tb, address).URL(), e.pooled...)
	}
	db.Open = func(tb testing.TB) stores.Store {
		tb.Helper()
		return e.store(tb, address, config)
	}
	db.StrictIsolation = func(testing.TB) { config.Isolation = sql.LevelSerializable }
	return db
}

// store opens a store on a *sql.DB, which the test closes after the store.
func (e entry) store(tb testing.TB, address string, config sqldb.Config) stores.Store {
	tb.Helper()
	db, err := e.open(address)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(6)
	db.SetMaxIdleConns(6)
	store, err := sqldb.New(db, config)
	if err != nil {
		tb.Fatal(err)
	}
	return &onDB{store, db}
}

// onDB closes the *sql.DB with the store.
type onDB struct {
	*sqldb.Store
	db *sql.DB
}

func (s *onDB) Close() error {
	err := s.Store.Close()
	_ = s.db.Close()
	return err
}

// server is a database on a server that can be killed, and turned into a standby, which
// takes no writes.
func (e entry) server(tb testing.TB) *storetest.Database {
	tb.Helper()
	server := testenv.PrivatePostgres(tb)
	db := e.database(tb, server.NewDatabase(tb))
	pgtest.AddFaults(db, server)
	return db
}

// transact runs f in a transaction of the program's own.
func transact(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
	own := store.(*onDB).Store
	tx, err := own.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = f(func(c stores.PublisherConfig) message.Publisher { return sqldb.NewPublisher(tx, own, c) })
	if err != nil {
		return err
	}
	return tx.Commit()
}

func inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, ok := sqldb.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	return f(tx)
}
