package pgproxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	createSQL = "CREATE TABLE t (i int PRIMARY KEY, s text)"
	insertSQL = "INSERT INTO t (i) VALUES ($1)"
)

// env is a database with an empty table t, behind a proxy.
type env struct {
	proxy  *pgproxy.Proxy
	direct *pgx.Conn // past the proxy
}

func newEnv(t *testing.T) *env {
	t.Helper()
	databaseURL := testenv.Postgres(t).NewDatabase(t)
	proxy, err := pgproxy.Start(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &env{proxy: proxy, direct: connect(t, databaseURL)}
	mustExec(t, e.direct, createSQL)
	return e
}

func connect(t *testing.T, databaseURL string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// rows returns the number of committed rows of t.
func (e *env) rows(t *testing.T) int {
	t.Helper()
	var n int
	if err := e.direct.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// insert runs BEGIN, INSERT, COMMIT.
func insert(ctx context.Context, conn *pgx.Conn, i int) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, insertSQL, i); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func TestTransactionCounts(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	if s := e.proxy.Stats(); s.RoundTrips != 0 {
		t.Errorf("connecting counted as %d round trips", s.RoundTrips)
	}
	if err := insert(t.Context(), conn, 1); err != nil { // prepares the statements
		t.Fatal(err)
	}
	before := e.proxy.Stats()
	if err := insert(t.Context(), conn, 2); err != nil {
		t.Fatal(err)
	}
	cost := e.proxy.Stats().Since(before)
	if cost.RoundTrips != 3 || cost.Commits != 1 || cost.Rollbacks != 0 {
		t.Errorf("the transaction cost %+v", cost)
	}
	if want := map[string]int{"begin": 1, insertSQL: 1, "commit": 1}; !maps.Equal(cost.Statements, want) {
		t.Errorf("the statements were %v, not %v", cost.Statements, want)
	}
	if n := e.rows(t); n != 2 {
		t.Errorf("there are %d rows", n)
	}
}

func TestRoundTrips(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	mustExec(t, conn, insertSQL, -1) // prepares it
	for _, test := range []struct {
		name string
		run  func(ctx context.Context) error
		want pgproxy.Stats
	}{
		{"one simple query", func(ctx context.Context) error {
			return conn.PgConn().Exec(ctx, "BEGIN; INSERT INTO t VALUES (1); COMMIT").Close()
		}, pgproxy.Stats{RoundTrips: 1, Commits: 1}},
		{"rollback", func(ctx context.Context) error {
			return conn.PgConn().Exec(ctx, "BEGIN; ROLLBACK").Close()
		}, pgproxy.Stats{RoundTrips: 1, Rollbacks: 1}},
		{"prepare", func(ctx context.Context) error {
			_, err := conn.Prepare(ctx, "p", "SELECT 1")
			return err
		}, pgproxy.Stats{RoundTrips: 1}},
		{"batch", func(ctx context.Context) error {
			var batch pgx.Batch
			for i := range 1000 {
				batch.Queue(insertSQL, 1000+i)
			}
			return conn.SendBatch(ctx, &batch).Close()
		}, pgproxy.Stats{RoundTrips: 1}},
		{"pipeline with several syncs", func(ctx context.Context) error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			for range 3 {
				pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
				pipeline.SendPipelineSync()
			}
			return errors.Join(pipeline.Flush(), pipeline.Close())
		}, pgproxy.Stats{RoundTrips: 1}},
		{"pipeline with a flush that is waited for", func(ctx context.Context) error {
			pipeline := conn.PgConn().StartPipeline(ctx)
			pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
			pipeline.SendFlushRequest()
			if err := pipeline.Flush(); err != nil {
				return err
			}
			results, err := pipeline.GetResults()
			if err != nil {
				return err
			}
			rows, ok := results.(*pgconn.ResultReader)
			if !ok {
				return fmt.Errorf("the result is a %T", results)
			}
			if _, err := rows.Close(); err != nil {
				return err
			}
			return errors.Join(pipeline.Sync(), pipeline.Close())
		}, pgproxy.Stats{RoundTrips: 2}},
		{"copy", func(ctx context.Context) error {
			_, err := conn.PgConn().CopyFrom(ctx, bytes.NewBufferString("50\ta\n51\tb\n"), "COPY t FROM STDIN")
			return err
		}, pgproxy.Stats{RoundTrips: 1}},
		{"error in a batch", func(ctx context.Context) error {
			var batch pgx.Batch
			batch.Queue("BEGIN")
			batch.Queue(insertSQL, -1)
			batch.Queue("COMMIT")
			if err := conn.SendBatch(ctx, &batch).Close(); err == nil {
				return errors.New("the duplicate was inserted")
			}
			_, err := conn.Exec(ctx, "ROLLBACK")
			return err
		}, pgproxy.Stats{RoundTrips: 3, Rollbacks: 1}}, // one to prepare
		{"commit of an aborted transaction", func(ctx context.Context) error {
			if err := execAll(ctx, conn, "BEGIN"); err != nil {
				return err
			}
			if err := execAll(ctx, conn, "SELECT 1/0"); err == nil {
				return errors.New("a division by zero has a result")
			}
			return execAll(ctx, conn, "COMMIT")
		}, pgproxy.Stats{RoundTrips: 4, Rollbacks: 1}}, // one to forget the statement that failed before
	} {
		t.Run(test.name, func(t *testing.T) {
			before := e.proxy.Stats()
			if err := test.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := e.proxy.Stats().Since(before)
			if got.RoundTrips != test.want.RoundTrips || got.Commits != test.want.Commits || got.Rollbacks != test.want.Rollbacks {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

func TestConnStats(t *testing.T) {
	e := newEnv(t)
	one, two := connect(t, e.proxy.URL()), connect(t, e.proxy.URL())
	mustExec(t, one, "SELECT 1")
	mustExec(t, two, "SELECT 1")
	mustExec(t, two, "SELECT 2")
	for conn, want := range map[*pgx.Conn]int{one: 1, two: 2} {
		if s, ok := e.proxy.ConnStats(conn.PgConn().PID()); !ok || s.RoundTrips != want {
			t.Errorf("%d round trips (%v), want %d", s.RoundTrips, ok, want)
		}
	}
	pid := one.PgConn().PID()
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the closed connection is gone", func() bool { _, ok := e.proxy.ConnStats(pid); return !ok })
	if s := e.proxy.Stats(); s.RoundTrips != 3 {
		t.Errorf("%d round trips in total, want 3", s.RoundTrips)
	}
}

func TestLargeMessages(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	payload := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	var back []byte
	if err := conn.QueryRow(t.Context(), "SELECT $1::bytea", payload).Scan(&back); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back, payload) {
		t.Error("the payload came back changed")
	}
}

func TestCancelRequest(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT pg_sleep(60)")
		result <- err
	}()
	var pgErr *pgconn.PgError
	testenv.Eventually(t, "the query is cancelled", func() bool {
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-result:
			return errors.As(err, &pgErr)
		default:
			return false
		}
	})
	if pgErr.Code != "57014" {
		t.Errorf("the query ended with %v", pgErr)
	}
}

// A client that would like TLS is told that there is none.
func TestPreferredTLS(t *testing.T) {
	e := newEnv(t)
	u, err := url.Parse(e.proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = "sslmode=prefer"
	mustExec(t, connect(t, u.String()), "SELECT 1")
}

func TestServerIsDown(t *testing.T) {
	proxy, err := pgproxy.Start("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := pgx.Connect(ctx, proxy.URL()); err == nil || ctx.Err() != nil {
		t.Errorf("connecting to a server that is down: %v", err)
	}
}

func TestStartRefusesWhatIsNoURL(t *testing.T) {
	for _, wrong := range []string{"host=127.0.0.1", "postgres://%zz", ""} {
		if proxy, err := pgproxy.Start(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
			_ = proxy.Close()
		}
	}
}

func TestCloseIsFinal(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	if err := errors.Join(e.proxy.Close(), e.proxy.Close()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the proxy")
	}
	if _, err := pgx.Connect(t.Context(), e.proxy.URL()); err == nil {
		t.Error("a closed proxy takes connections")
	}
}
