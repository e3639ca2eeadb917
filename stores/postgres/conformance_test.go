package postgres_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	h := harness()
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		address := pgtest.Impatient(tb, testenv.VolatilePostgres(tb).NewDatabase(tb))
		return conformanceDatabase(tb, address, openConformance(address))
	}
	h.NewServer = conformanceServer
	h.Groups = append([]string{"claim", "inbox"}, rotation.OnStore(t, "postgres", storetest.GroupNames()...)...)
	storetest.Run(t, h)
}

// Behind a pooler in transaction mode nothing of a session may be relied on.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	h := harness()
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		address := testenv.VolatilePostgres(tb).NewDatabase(tb)
		pooler := testenv.PgBouncer(tb, address)
		db := conformanceDatabase(tb, address, func(tb testing.TB, _ postgres.Config) stores.Store {
			tb.Helper()
			store, err := postgres.Open(tb.Context(), pgtest.WithParameters(tb, pooler.URL(), "pgbouncer", "transaction", "pool_max_conns", "6"))
			if err != nil {
				tb.Fatal(err)
			}
			return store
		})
		db.StrictIsolation = nil // a URL does not choose one
		return db
	}
	if !rotation.Soak() {
		h.Groups = append([]string{"claim"}, rotation.Turn(t, 1, "resolve", "record", "due", "inbox")...)
	}
	storetest.Run(t, h)
}

func harness() storetest.Harness {
	return storetest.Harness{
		Write: func(ctx context.Context, e storetest.Effect) error {
			return inTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES ($1, $2, $3)", e.Key, e.Label, e.Run)
				return err
			})
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return postgres.Handler(func(ctx context.Context, _ pgx.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Transact: func(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
			if wrapped, ok := store.(*onPool); ok {
				store = wrapped.Store
			}
			own := store.(*postgres.Store)
			return pgx.BeginFunc(ctx, own.Pool(), func(tx pgx.Tx) error {
				return f(func(c stores.PublisherConfig) message.Publisher { return postgres.NewPublisher(tx, own, c) })
			})
		},
		Ways:  ways(),
		Acts:  acts(),
		Lacks: map[storetest.Act]string{},
	}
}

type opener func(tb testing.TB, config postgres.Config) stores.Store

func conformanceDatabase(tb testing.TB, address string, open opener) *storetest.Database {
	tb.Helper()
	var config postgres.Config
	db := pgtest.NewDatabase(tb, address)
	db.Open = func(tb testing.TB) stores.Store {
		tb.Helper()
		return open(tb, config)
	}
	db.StrictIsolation = func(testing.TB) { config.Isolation = pgx.Serializable }
	return db
}

// openConformance opens stores on a pool each, which is closed with the store.
func openConformance(address string) opener {
	return func(tb testing.TB, config postgres.Config) stores.Store {
		tb.Helper()
		poolConfig, err := pgxpool.ParseConfig(address)
		if err != nil {
			tb.Fatal(err)
		}
		poolConfig.MaxConns = 6
		pool, err := pgxpool.NewWithConfig(tb.Context(), poolConfig)
		if err != nil {
			tb.Fatal(err)
		}
		store, err := postgres.New(pool, config)
		if err != nil {
			tb.Fatal(err)
		}
		return &onPool{store, pool}
	}
}

// onPool closes the pool with the store.
type onPool struct {
	*postgres.Store
	pool *pgxpool.Pool
}

func (s *onPool) Close() error {
	err := s.Store.Close()
	s.pool.Close()
	return err
}

// conformanceServer is a database on a server that can be killed, and turned into a
// standby, which takes no writes.
func conformanceServer(tb testing.TB) *storetest.Database {
	tb.Helper()
	server := testenv.PrivatePostgres(tb)
	address := server.NewDatabase(tb)
	db := conformanceDatabase(tb, address, openConformance(address))
	pgtest.AddFaults(db, server)
	return db
}

func inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, ok := postgres.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	return f(tx)
}
