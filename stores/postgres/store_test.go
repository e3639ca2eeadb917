package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore returns a store on a fresh database, with the consumer registered and a
// table for effects that would show every double.
func openStore(t *testing.T, url string) *postgres.Store {
	t.Helper()
	ctx := t.Context()
	store, err := postgres.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := store.Register(ctx, stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Pool().Exec(ctx, "CREATE TABLE IF NOT EXISTS effect (key text, label text)"); err != nil {
		t.Fatal(err)
	}
	return store
}

func newStore(t *testing.T) *postgres.Store {
	t.Helper()
	return openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
}

func begin(t *testing.T, s *postgres.Store, c stores.Claim) (stores.Attempt, pgx.Tx) {
	t.Helper()
	return pgtest.Begin(t, s, c, postgres.TxFromContext)
}

func look(t *testing.T, s *postgres.Store, c stores.Claim) stores.Verdict {
	t.Helper()
	v, err := s.Look(t.Context(), c.Key, c.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func effects(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func exec(t *testing.T, tx interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, sql string, args ...any,
) {
	t.Helper()
	rows, err := tx.Query(t.Context(), sql, args...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestClaimedOnceThenDuplicate(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("order-1")
	c.TraceParent, _ = stores.ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	a, tx := begin(t, s, c)
	if v := pgtest.Verdict(t, s, c); v.Outcome != stores.InFlight {
		t.Fatalf("while held: %v", v.Outcome)
	}
	exec(t, tx, "INSERT INTO effect VALUES ($1, 'done')", "order-1")
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range []stores.Verdict{pgtest.Verdict(t, s, c), look(t, s, c)} {
		if v.Outcome != stores.Duplicate || v.TraceParent != c.TraceParent || time.Since(v.CompletedAt) > time.Minute {
			t.Fatalf("%+v", v)
		}
	}
	if n := effects(t, s.Pool()); n != 1 {
		t.Fatalf("%d effects", n)
	}
}

// A handler that the server stopped listening to must not keep its key.
func TestBoundFreesTheKeyOfAHolderThatStandsStill(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("stuck")
	c.Bound = 200 * time.Millisecond
	a, tx := begin(t, s, c)
	exec(t, tx, "INSERT INTO effect VALUES ($1, 'half')", "stuck")
	// Nothing more is said on this connection: to the server it is a stopped process.
	deadline := time.Now().Add(30 * time.Second)
	for pgtest.Verdict(t, s, c).Outcome == stores.InFlight {
		if time.Now().After(deadline) {
			t.Fatal("the key is still held")
		}
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !errors.Is(err, stores.ErrTxExpired) {
		t.Fatalf("the commit of a transaction that the server has ended: %v", err)
	}
	if n := effects(t, s.Pool()); n != 0 {
		t.Fatalf("%d effects", n)
	}
}

// The user's own, tighter limits stay.
func TestBoundNeverRaisesTheServersOwnLimits(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t),
		"statement_timeout", "7000", "idle_in_transaction_session_timeout", "9000"))
	a, tx := begin(t, s, pgtest.Claim("limits"))
	defer func() { _ = a.Rollback(t.Context()) }()
	var statement, idle string
	err := tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')").Scan(&statement, &idle)
	if err != nil || statement != "7s" || idle != "9s" {
		t.Fatalf("statement_timeout %s, idle %s, %v", statement, idle, err)
	}
}

// A process that is stopped before it has ended the transaction of a claim that was not won
// would keep the key's lock for ever.
func TestClaimsThatAreNotWonAreBoundToo(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	claim := pgtest.Claim("done")
	a, _ := begin(t, s, claim)
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim.Bound = 7 * time.Second
	text, args, err := s.ClaimStatement(claim)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var (
		locks           int
		statement, idle string
	)
	won, err := tx.Exec(t.Context(), text, args...)
	if err == nil {
		err = tx.QueryRow(t.Context(), `SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),
(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`).Scan(&statement, &idle, &locks)
	}
	if err != nil || won.RowsAffected() != 0 || locks != 1 || statement != "7s" || idle != "7s" {
		t.Errorf("%s, %d locks, statement_timeout %s, idle %s, %v", won, locks, statement, idle, err)
	}
}

// A dump that is restored sets the tables back, and the server runs on.
func TestRestoredTablesAreAnotherServers(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	asked := func(id string) (claimed, looked uint64) {
		t.Helper()
		a, v, err := s.Begin(t.Context(), pgtest.Claim(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return v.Server, look(t, s, pgtest.Claim(id)).Server
	}
	claimed, looked := asked("before")
	for _, text := range []string{
		"CREATE TABLE restored (LIKE millpond_inbox INCLUDING ALL)", "DROP TABLE millpond_inbox", "ALTER TABLE restored RENAME TO millpond_inbox",
	} {
		exec(t, s.Pool(), text)
	}
	claimedSince, lookedSince := asked("before")
	if claimed == 0 || claimed != looked || claimedSince != lookedSince || claimed == claimedSince {
		t.Errorf("the server was %d and %d, and is %d and %d", claimed, looked, claimedSince, lookedSince)
	}
}

// A failover may lead to a server with other settings. Who is told of it registers again.
func TestSettingsAreReadAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	settings := func(timeout, isolation string) {
		t.Helper()
		for name, value := range map[string]string{
			"statement_timeout": timeout, "idle_in_transaction_session_timeout": timeout, "default_transaction_isolation": isolation,
		} {
			_, err := s.Pool().Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", pgx.Identifier{s.Pool().Config().ConnConfig.Database}.Sanitize(), name, value))
			if err != nil {
				t.Fatal(err)
			}
		}
		s.Pool().Reset()
		if err := s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
	settings("500ms", "read committed")
	settings("0", "serializable")
	claim := pgtest.Claim("elsewhere")
	claim.Bound = 7 * time.Second
	a, tx := begin(t, s, claim)
	defer func() { _ = a.Rollback(t.Context()) }()
	var statement, idle, isolation string
	err := tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation')").
		Scan(&statement, &idle, &isolation)
	if err != nil || statement != "7s" || idle != "7s" || isolation != "read committed" {
		t.Fatalf("statement_timeout %s, idle %s, isolation %s, %v", statement, idle, isolation, err)
	}
}

// The settings take 2^31-1 ms, which is less than some may allow their handlers.
func TestABoundOfMonthsIsWhatTheServerTakes(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	claim := pgtest.Claim("months")
	claim.Bound = 60 * 24 * time.Hour
	a, tx := begin(t, s, claim)
	defer func() { _ = a.Rollback(t.Context()) }()
	var statement, idle string
	err := tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')").Scan(&statement, &idle)
	if err != nil || statement != "2147483647ms" || idle != statement {
		t.Fatalf("statement_timeout %s, idle %s, %v", statement, idle, err)
	}
}

func TestHandlersMaySetTheSearchPath(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	// Tables of the same name elsewhere must never be taken for ours.
	if _, err := s.Pool().Exec(t.Context(), "CREATE SCHEMA tenant; CREATE TABLE tenant.millpond_inbox (LIKE millpond_inbox INCLUDING ALL)"); err != nil {
		t.Fatal(err)
	}
	for i, set := range []string{"SET LOCAL search_path TO tenant", "SET search_path TO tenant", "SELECT 1"} {
		c := pgtest.Claim(fmt.Sprint("tenant ", i))
		a, tx := begin(t, s, c)
		var batch pgx.Batch // unwatched, so that the commit asks for the row
		batch.Queue(set)
		if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(t.Context()); err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		if v := pgtest.Verdict(t, s, c); v.Outcome != stores.Duplicate {
			t.Fatalf("%s: %v", set, v.Outcome)
		}
	}
	var rows int
	if err := s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM public.millpond_inbox").Scan(&rows); err != nil || rows != 3 {
		t.Fatalf("%d rows, %v", rows, err)
	}
}

func TestCommitReturnsTheSameAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a, _ := begin(t, s, pgtest.Claim("committed"))
	if err := errors.Join(a.Commit(t.Context()), a.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	a, _ = begin(t, s, pgtest.Claim("rolled back"))
	_ = a.Rollback(t.Context())
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) {
		t.Error(err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, c := range map[string]postgres.Config{
		"TablePrefix": {TablePrefix: `a"; DROP TABLE users; --`},
		"Schema":      {Schema: "Über"},
		"Isolation":   {Isolation: "read everything"},
	} {
		if _, err := postgres.New(pool, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := postgres.New(nil, postgres.Config{}); err == nil {
		t.Error("a nil pool was taken")
	}
}

func TestURLErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	pgtest.ErrorsHide(t, "canary",
		"postgres://user:canary@127.0.0.1:1/db",
		"postgres://user:canary@127.0.0.1:1/db?sslmode=nonsense",
		"postgres://user:canary@127.0.0.1:notaport/db",
		"postgres://user:canary@127.0.0.1:1/db?millpond_prefix=a-b",
		"postgres://user:canary@127.0.0.1:1/db?millpond_shema=typo",
		"postgres://user@127.0.0.1:1/db?sslmode=verify-full;password=canary",
		"mongodb://user:canary@host/db",
		"host=127.0.0.1 port=1 user=user password=canary dbname=db",
		"user:canary@127.0.0.1:1/db",
		"//user:canary@127.0.0.1:1/db",
	)
}

func TestOpenSaysWhatToDoAboutARefusal(t *testing.T) {
	t.Parallel()
	good := testenv.VolatilePostgres(t).NewDatabase(t)
	other, err := url.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	other.Path = "/no_such_database"
	for address, says := range map[string]string{
		pgtest.WithParameters(t, other.String(), "sslmode", "prefer"): "create it, or name another in the URL",
		pgtest.WithParameters(t, good, "no_such_setting", "1"):        "check the parameters of the URL",
	} {
		_, err := stores.Open(t.Context(), address)
		if err == nil || !strings.HasPrefix(err.Error(), "postgres: cannot connect to "+other.Host) || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
			continue
		}
		if strings.Contains(err.Error(), "TLS") {
			t.Errorf("the error speaks of TLS, which was not the reason: %v", err)
		}
	}
}

func TestClaimThatIsContendedStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pgtest.Contended(t, s, s.Pool().Config().ConnString())
}
