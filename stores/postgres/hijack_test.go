package postgres_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// suspicious makes the commit ask whose transaction it is.
func suspicious(t *testing.T) func(stores.Attempt) {
	t.Helper()
	return func(a stores.Attempt) {
		tx, _ := postgres.TxFromContext(a.Context(t.Context()))
		var batch pgx.Batch
		batch.Queue("SELECT 1")
		if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func administer(t *testing.T, address string, texts ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, text := range texts {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// as returns the address for another role.
func as(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

func toured(t *testing.T, address string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Tour(t, s, suspicious(t))
	pgtest.Listens(t, s)
	return s
}

// Somebody without any right to our tables must not have code run by our statements.
func TestWhatOthersPlantInPublicIsNotRun(t *testing.T) {
	t.Parallel()
	server := testenv.PrivatePostgres(t)
	for _, schema := range []string{"", "millpond"} {
		address := server.NewDatabase(t)
		if schema == "" {
			administer(t, address, "CREATE ROLE attacker LOGIN", "CREATE ROLE runtime LOGIN")
		}
		administer(t, address, "GRANT CREATE ON SCHEMA public TO public", "CREATE SCHEMA millpond AUTHORIZATION runtime")
		administer(t, as(t, address, "attacker"), pgtest.Hijacks)
		s := toured(t, pgtest.WithParameters(t, as(t, address, "runtime"), "millpond_schema", schema))
		rows, _ := s.Pool().Query(t.Context(), "SELECT DISTINCT what FROM hijacked")
		what, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(what) > 0 {
			t.Errorf("schema %q: the runtime role has run what an attacker had planted: %q, %v", schema, what, err)
		}
	}
}

// Nor under the names of our own tables.
func TestTablesThatOthersHavePlantedAreNotUsed(t *testing.T) {
	t.Parallel()
	pgtest.Planted(t, func(t *testing.T, address string) stores.Store {
		t.Helper()
		s, err := postgres.Open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}

// The server itself says which names of ours it looks for: every one that is not qualified
// meets a trap.
func TestStatementsNameWhatIsTheServersOwn(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	administer(t, address, pgtest.Traps)
	trapped := pgtest.WithParameters(t, address, "search_path", "traps,public,pg_catalog")
	for text, trap := range map[string]string{
		"SELECT now()": "function now", "SELECT 1 = 1": "function int4eq", "SELECT count(*) FROM pg_namespace": "aggregate", "SELECT 'a'::text": "domain",
	} {
		conn, err := pgx.Connect(t.Context(), trapped)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), text); err == nil || !strings.Contains(err.Error(), trap) {
			t.Errorf("%s is not trapped: %v", text, err)
		}
		_ = conn.Close(t.Context())
	}
	toured(t, pgtest.WithParameters(t, trapped, "millpond_schema", "public"))
}

// A temporary table is found before any other of its name, and belongs to whoever had the
// session before.
func TestTemporaryTablesAreNotTakenForOurs(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	openStore(t, address)
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CREATE TEMP TABLE millpond_schema AS SELECT 1 AS version, 1 AS compatible;
CREATE TEMP TABLE millpond_inbox (LIKE public.millpond_inbox INCLUDING ALL); CREATE TEMP TABLE millpond_consumer (LIKE public.millpond_consumer INCLUDING ALL)`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Tour(t, s, suspicious(t))
	pgtest.Listens(t, s)
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM public.millpond_inbox WHERE status = 2").Scan(&rows); err != nil || rows == 0 {
		t.Errorf("%d completed rows in the real table, %v", rows, err)
	}
}

// recorder keeps the texts that a connection sends.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) keep(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.keep(data.SQL)
	return ctx
}
func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		r.keep(query.SQL)
	}
	return ctx
}
func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

var (
	literals    = regexp.MustCompile(`'[^']*'|--[^\n]*`)
	named       = regexp.MustCompile(`OPERATOR\(pg_catalog\.[-+*/<>=~!@#%^&|]+\)`)
	assignments = regexp.MustCompile(`(\bSET|,)\s+\w+ = `)
	stars       = regexp.MustCompile(`\(\*\)|\.\*|RETURNING \*`)
	operator    = regexp.MustCompile(`[-+*/<>=~!@#%^&|]`)
	call        = regexp.MustCompile(`(?:^|[^.\w"])([a-z_][a-z0-9_]*)\(`)
	cast        = regexp.MustCompile(`::([a-z_][a-z0-9_]*)\b[^.]`)
	ownGrammar  = regexp.MustCompile(`^(coalesce|greatest|least|extract|position|bigint|integer|smallint|boolean|interval|bit)$`)
	looksUp     = regexp.MustCompile(`\b(nullif\(|CASE [^W]|LIKE|BETWEEN|IS DISTINCT|USING \()`)
)

func TestTextsOfStatementsAreQualified(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testenv.VolatilePostgres(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Tour(t, s, suspicious(t))
	pgtest.Listens(t, s)
	if len(r.texts) < 80 {
		t.Errorf("only %d statements were seen", len(r.texts))
	}
	for _, text := range r.texts {
		left := literals.ReplaceAllString(text, "''")
		left = stars.ReplaceAllString(assignments.ReplaceAllString(named.ReplaceAllString(left, " "), "$1 "), "")
		if op := operator.FindString(left); op != "" {
			t.Errorf("the operator %s in %s", op, text)
		}
		for _, found := range append(call.FindAllStringSubmatch(left, -1), cast.FindAllStringSubmatch(left+" ", -1)...) {
			if !ownGrammar.MatchString(found[1]) {
				t.Errorf("%s in %s", found[1], text)
			}
		}
		if found := looksUp.FindString(left); found != "" {
			t.Errorf("%s in %s", found, text)
		}
	}
}
