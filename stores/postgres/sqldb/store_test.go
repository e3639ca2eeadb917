package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var stock = stores.Consumer{Service: "inventory", Handler: "stock"}

// newStore returns a store of an entry on an address, with the consumer registered and
// a table for effects.
func newStore(t *testing.T, e entry, address string) *sqldb.Store {
	t.Helper()
	db, err := e.open(address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqldb.New(db, e.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Register(t.Context(), stores.Registration{Consumer: stock, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS effect (key text, label text)"); err != nil {
		t.Fatal(err)
	}
	return store
}

func claim(id string) stores.Claim {
	return stores.Claim{
		Key:         stores.Key{Consumer: stock, ID: []byte(id)},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(id)),
		Bound:       time.Minute,
	}
}

func begin(t *testing.T, s *sqldb.Store, c stores.Claim) (stores.Attempt, *sql.Tx) {
	t.Helper()
	a, v, err := s.Begin(t.Context(), c)
	if err != nil || v.Outcome != stores.Claimed {
		t.Fatalf("Begin: %v, %v", v.Outcome, err)
	}
	tx, ok := sqldb.TxFromContext(a.Context(t.Context()))
	if !ok {
		t.Fatal("no transaction in the attempt's context")
	}
	return a, tx
}

func outcome(t *testing.T, s *sqldb.Store, c stores.Claim) stores.Verdict {
	t.Helper()
	a, v, err := s.Begin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if a != nil {
		_ = a.Rollback(t.Context())
	}
	return v
}

func effects(t *testing.T, s *sqldb.Store) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// entries runs a test with every way to a *sql.DB.
func entries(t *testing.T, test func(t *testing.T, e entry)) {
	t.Helper()
	t.Parallel()
	for _, e := range []entry{connector, callersPG, callersPG.unproven(), callersPQ, callersPQ.unproven()} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// A commit that is not proven must not be taken for one that is.
func TestCapabilitiesSayWhatCommitsProve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry entry
		want  bool
	}{{connector, false}, {callersPG, false}, {callersPG.unproven(), true}, {callersPQ.unproven(), true}} {
		db, err := test.entry.open("postgres://nobody@127.0.0.1:1/none")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		store, err := sqldb.New(db, test.entry.config)
		if err != nil {
			t.Fatal(err)
		}
		if c := store.Capabilities(); c.CommitUnproven != test.want || !c.ServerBound {
			t.Errorf("%s: %+v", test.entry.name, c)
		}
	}
}

// The context of Begin bounds nothing else.
func TestAttemptOutlivesTheContextOfBegin(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.Postgres(t).NewDatabase(t))
		ctx, cancel := context.WithCancel(t.Context())
		a, _, err := s.Begin(ctx, claim("a"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		tx, _ := sqldb.TxFromContext(a.Context(t.Context()))
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ('a', 'done')"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Commit(t.Context()), a.Commit(t.Context()), a.Rollback(t.Context())); err != nil {
			t.Fatal(err)
		}
		if v := outcome(t, s, claim("a")); v.Outcome != stores.Duplicate || effects(t, s) != 1 {
			t.Fatal(v.Outcome)
		}
	})
}

// Nothing of a connection may be left with an attempt that has ended.
func TestConnectionsComeBack(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.Postgres(t).NewDatabase(t))
		ends := map[string]func(stores.Attempt, *sql.Tx){
			"commit":        func(a stores.Attempt, _ *sql.Tx) { _ = a.Commit(t.Context()) },
			"rollback":      func(a stores.Attempt, _ *sql.Tx) { _ = a.Rollback(t.Context()) },
			"own commit":    func(a stores.Attempt, tx *sql.Tx) { _ = tx.Commit(); _ = a.Commit(t.Context()) },
			"own rollback":  func(a stores.Attempt, tx *sql.Tx) { _ = tx.Rollback(); _ = a.Rollback(t.Context()) },
			"ended context": func(a stores.Attempt, _ *sql.Tx) { _ = a.Commit(ended(t)) },
			"hidden error": func(a stores.Attempt, tx *sql.Tx) {
				_, _ = tx.ExecContext(t.Context(), "SELECT 1/0")
				_ = a.Commit(t.Context())
			},
		}
		for name, end := range ends {
			for range 3 {
				a, tx := begin(t, s, claim(name+time.Now().String()))
				end(a, tx)
				if use := s.PoolUse(); use.InUse != 0 {
					t.Fatalf("%s: %+v", name, use)
				}
				if _, err := tx.ExecContext(t.Context(), "SELECT 1"); !errors.Is(err, sql.ErrTxDone) {
					t.Fatalf("%s: the transaction is still usable: %v", name, err)
				}
			}
		}
		for _, v := range []stores.Verdict{outcome(t, s, claim("again")), outcome(t, s, claim("again"))} {
			if v.Outcome != stores.Claimed || s.PoolUse().InUse != 0 {
				t.Fatalf("%v, %+v", v.Outcome, s.PoolUse())
			}
		}
	})
}

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestOwnCommitIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.Postgres(t).NewDatabase(t))
	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		a, tx := begin(t, s, claim(name))
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ('a', 'done')"); err != nil {
			t.Fatal(err)
		}
		if err := end(tx); !errors.Is(err, stores.ErrTxManaged) {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !errors.Is(err, stores.ErrTxManaged) || errors.Is(err, stores.ErrTxEscaped) {
			t.Errorf("%s: %v", name, err)
		}
		if v := outcome(t, s, claim(name)); v.Outcome != stores.Claimed || effects(t, s) != 0 {
			t.Errorf("%s: %v, %d effects", name, v.Outcome, effects(t, s))
		}
	}
}

// What a handler does after it has ended the transaction by SQL commits by itself. Such
// a message must not run again.
func TestHandlerThatGoesOnWithoutATransactionRunsOnce(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{callersPG.unproven(), callersPQ.unproven()} {
		s := newStore(t, e, testenv.Postgres(t).NewDatabase(t))
		for _, rollback := range []bool{false, true} {
			c := claim("loose")
			if rollback {
				c = claim("loose, then an error")
			}
			a, tx := begin(t, s, c)
			for _, text := range []string{"ROLLBACK", "INSERT INTO effect VALUES ('a', 'done')"} {
				if _, err := tx.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if rollback {
				err = a.Rollback(t.Context())
			} else {
				err = a.Commit(t.Context())
			}
			if !errors.Is(err, stores.ErrTxEscaped) {
				t.Errorf("%s: %v", e.name, err)
			}
			escaped, err := a.(stores.Escapable).Escaped(t.Context()) //nolint:forcetypeassert // a panic is a failure too
			if err != nil || !escaped {
				t.Errorf("%s: %v, %v", e.name, escaped, err)
			}
			if v := outcome(t, s, c); v.Outcome != stores.Duplicate {
				t.Errorf("%s: %v", e.name, v.Outcome)
			}
		}
	}
}

// The database's own failures are no attempts.
func TestInterruptedAttemptsAreTold(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.Postgres(t).NewDatabase(t))
		for text, want := range map[string]bool{
			"DO $$ BEGIN RAISE SQLSTATE '40001'; END $$": true,
			"SELECT 1/0": false,
		} {
			a, _ := begin(t, s, claim(text))
			msg := message.NewMessage("", nil)
			msg.SetContext(a.Context(t.Context()))
			err := sqldb.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
				_, err := tx.ExecContext(ctx, text)
				return err
			})(msg)
			if err == nil {
				t.Fatal("the statement did not fail")
			}
			_ = a.Rollback(t.Context())
			if got := a.(stores.Interruptible).Interrupted() != nil; got != want { //nolint:forcetypeassert // a panic is a failure too
				t.Errorf("%s: interrupted %v", text, got)
			}
		}
	})
}

// The connector serves whatever else a program does with its *sql.DB.
func TestConnectorIsPgxForEverythingElse(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.Postgres(t).NewDatabase(t))
	db := s.DB()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		t.Fatal(err)
	}
	var level string
	if err := tx.QueryRowContext(t.Context(), "SHOW transaction_isolation").Scan(&level); err != nil || level != "serializable" {
		t.Errorf("%s, %v", level, err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ($1, $2)", "a", "done"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil || effects(t, s) != 1 {
		t.Error(err, effects(t, s))
	}
	stmt, err := db.PrepareContext(t.Context(), "SELECT $1::int + 1")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	var n int
	if err := stmt.QueryRowContext(t.Context(), 1).Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
	// Also within a transaction that holds a claim.
	a, claiming := begin(t, s, claim("prepared"))
	if err := claiming.StmtContext(t.Context(), stmt).QueryRowContext(t.Context(), 2).Scan(&n); err != nil || n != 3 { //nolint:sqlclosecheck // the transaction closes it
		t.Error(n, err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(driverConn any) error {
		return driverConn.(interface{ Conn() *pgx.Conn }).Conn().Ping(t.Context()) //nolint:forcetypeassert // a panic is a failure too
	})
	if err != nil {
		t.Error(err)
	}
}

// A statement that was prepared before the claim cannot end its transaction either.
func TestStatementPreparedBeforeIsWatched(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.Postgres(t).NewDatabase(t))
	stmt, err := s.DB().PrepareContext(t.Context(), "COMMIT")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	a, tx := begin(t, s, claim("a"))
	if _, err := tx.StmtContext(t.Context(), stmt).ExecContext(t.Context()); !errors.Is(err, stores.ErrTxManaged) { //nolint:sqlclosecheck // the transaction closes it
		t.Error(err)
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrTxManaged) {
		t.Error(err)
	}
}

func TestListenIsForTheConnectorAlone(t *testing.T) {
	t.Parallel()
	address := testenv.Postgres(t).NewDatabase(t)
	s := newStore(t, connector, address)
	woken := make(chan struct{}, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Listen(ctx, func() { woken <- struct{}{} }) }()
	<-woken // it listens now
	if err := s.Release(t.Context(), []stores.Retry{{}}); err != nil {
		t.Fatal(err)
	}
	<-woken
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, e := range []entry{callersPG, callersPQ} {
		if err := newStore(t, e, address).Listen(t.Context(), func() {}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", e.name, err)
		}
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	db, err := sqldb.OpenDB("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, c := range map[string]sqldb.Config{
		"TablePrefix": {TablePrefix: `a"; DROP TABLE users; --`},
		"Schema":      {Schema: "Über"},
		"Isolation":   {Isolation: sql.LevelLinearizable},
	} {
		if _, err := sqldb.New(db, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sqldb.New(nil, sqldb.Config{}); err == nil {
		t.Error("a nil *sql.DB was taken")
	}
}

func TestURLErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres+sql://user:canary@127.0.0.1:1/db",
		"postgresql+sql://user:canary@127.0.0.1:1/db?sslmode=nonsense",
		"postgres+sql://user:canary@127.0.0.1:notaport/db",
		"postgres+sql://user:canary@127.0.0.1:1/db?millpond_prefix=a-b",
		"postgres+sql://user:canary@127.0.0.1:1/db?millpond_shema=typo",
		"postgres+sql://user@127.0.0.1:1/db?pgbouncer=canary",
		"postgres+sql://user:canary@127.0.0.1:1/db?pgbouncer=transaction&default_query_exec_mode=cache_statement",
		"postgres+sql://user@127.0.0.1:1/db?sslmode=verify-full;password=canary",
	} {
		_, err := stores.Open(t.Context(), url)
		if err == nil {
			t.Fatalf("%s was opened", url)
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the password is in %q", err)
		}
		t.Log(err)
	}
}

func TestURLOpens(t *testing.T) {
	t.Parallel()
	address := testenv.Postgres(t).NewDatabase(t)
	s, err := stores.Open(t.Context(), withParameters(t, strings.Replace(address, "://", "+sql://", 1), "pool_max_conns", "3"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if pool := s.Capabilities().Pool; pool.Max != 3 || pool.Setting != "pool_max_conns" {
		t.Errorf("%+v", pool)
	}
}
