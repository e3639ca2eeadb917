package testenv_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func queryString(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var s string
	if err := conn.QueryRow(t.Context(), sql).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPostgresIsDurable(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	conn := connect(t, testenv.Postgres(t).NewDatabase(t))
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if value := queryString(t, conn, "SHOW "+name); value != "on" {
			t.Errorf("%s is %s", name, value)
		}
	}
}

func TestPostgresDatabasesAreSeparateAndDropped(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.Postgres(t)
	var url string
	t.Run("test", func(t *testing.T) {
		url = server.NewDatabase(t)
		conn := connect(t, url)
		exec(t, conn, "CREATE TABLE t (i int)")
		// A client that is still connected at the end does not keep the database.
		if _, err := pgx.Connect(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if exists := queryString(t, connect(t, server.NewDatabase(t)), "SELECT to_regclass('t') IS NOT NULL || ''"); exists != "false" {
			t.Error("two databases of one test share a table")
		}
	})
	_, err := pgx.Connect(t.Context(), url)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "3D000" {
		t.Errorf("connecting to the database of a finished test: %v", err)
	}
}

func TestPostgresAtAnotherAddress(t *testing.T) {
	private := testenv.PrivatePostgres(t)
	t.Setenv("MILLPOND_TEST_POSTGRES_URL", private.URL())
	server := testenv.Postgres(t)
	if server.URL() != private.URL() {
		t.Errorf("the server is %s, not %s", server.URL(), private.URL())
	}
	conn := connect(t, server.NewDatabase(t))
	if got, want := queryString(t, conn, "SHOW data_directory"), queryString(t, connect(t, private.URL()), "SHOW data_directory"); got != want {
		t.Errorf("the database is in %s, not in %s", got, want)
	}
}

func TestPrivatePostgresSettings(t *testing.T) {
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{
		"default_transaction_read_only": "on",
		"application_name":              "it's",
	}))
	conn := connect(t, server.URL())
	if got := queryString(t, conn, "SHOW application_name"); got != "it's" {
		t.Errorf("the setting with a quote is %q", got)
	}
	_, err := conn.Exec(t.Context(), "CREATE TABLE t (i int)")
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "25006" {
		t.Errorf("writing on a read-only server: %v", err)
	}
}

// Committed rows survive a kill, and the server comes back at the same address, even
// with a backend that was too busy to notice.
func TestPrivatePostgresKill(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivatePostgres(t)
	url := server.NewDatabase(t)
	conn := connect(t, url)
	exec(t, conn, "CREATE TABLE t (i int)")
	exec(t, conn, "INSERT INTO t VALUES (1)")

	busy := connect(t, url)
	result := make(chan error)
	go func() {
		_, err := busy.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 10000000000)")
		result <- err
	}()
	testenv.Eventually(t, "a backend is busy", func() bool {
		return queryString(t, conn, "SELECT count(*)::text FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count(*) FROM generate_series%'") == "1"
	})

	pids, err := server.PIDs()
	if err != nil || len(pids) < 4 || pids[0] != server.PID() {
		t.Errorf("the processes are %v (%v), the postmaster %d", pids, err, server.PID())
	}
	done := server.Done()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := <-result; err == nil {
		t.Error("the busy backend has answered")
	}
	if _, err := server.PIDs(); !errors.Is(err, daemon.ErrNotRunning) {
		t.Errorf("processes of a killed server: %v", err)
	}
	if err := server.Kill(); !errors.Is(err, daemon.ErrNotRunning) {
		t.Errorf("killed twice: %v", err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); !errors.Is(err, daemon.ErrRunning) {
		t.Errorf("started twice: %v", err)
	}
	if got := queryString(t, connect(t, url), "SELECT string_agg(i::text, ',') FROM t"); got != "1" {
		t.Errorf("the rows are %q", got)
	}
}

func TestPrivatePostgresStopAndRestart(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivatePostgres(t)
	url := server.URL()
	connect(t, url) // does not hold up the stop
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.PID() != 0 {
		t.Errorf("a stopped server has the process %d", server.PID())
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a stopped server answers")
	}
	for range 2 { // from stopped, and from running
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		connect(t, url)
	}
}

func TestStartFailsAtOnceWithTheLog(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	began := time.Now()
	_, err := postgres.Start(t.Context(), postgres.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the failure was noticed after %v", took)
	}
}

func TestCloseRemovesEverything(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server, err := postgres.Start(t.Context(), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(server.LogFile()); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory is still there")
	}
	if err := server.Start(t.Context()); !errors.Is(err, daemon.ErrClosed) {
		t.Errorf("started after Close: %v", err)
	}
}

func TestDropRefusesWhatIsNotOurs(t *testing.T) {
	server := testenv.Postgres(t)
	if err := postgres.DropDatabase(t.Context(), server.URL(), server.URL()); err == nil {
		t.Error("the maintenance database was dropped")
	}
}
