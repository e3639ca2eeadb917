package pgproxy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/testenv"
)

// ways are the ways in which a client can send a transaction that inserts row 1.
var ways = []struct {
	name string
	run  func(ctx context.Context, conn *pgx.Conn) error
}{
	{"simple", func(ctx context.Context, conn *pgx.Conn) error { return insert(ctx, conn, 1) }},
	{"simple, in capitals and with a semicolon", func(ctx context.Context, conn *pgx.Conn) error {
		return execAll(ctx, conn, "BEGIN", "INSERT INTO t VALUES (1)", " COMMIT WORK ; ")
	}},
	{"simple, end", func(ctx context.Context, conn *pgx.Conn) error {
		return execAll(ctx, conn, "BEGIN", "INSERT INTO t VALUES (1)", "END TRANSACTION")
	}},
	{"simple, several statements", func(ctx context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Exec(ctx, "BEGIN; INSERT INTO t VALUES (1); COMMIT").Close()
	}},
	{"unnamed", func(ctx context.Context, conn *pgx.Conn) error {
		if err := execAll(ctx, conn, "BEGIN", "INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		_, err := conn.PgConn().ExecParams(ctx, "commit", nil, nil, nil, nil).Close()
		return err
	}},
	{"prepared", func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.PgConn().Prepare(ctx, "done", "commit", nil); err != nil {
			return err
		}
		if err := execAll(ctx, conn, "BEGIN", "INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		_, err := conn.PgConn().ExecPrepared(ctx, "done", nil, nil, nil).Close()
		return err
	}},
	{"pipeline", func(ctx context.Context, conn *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue("begin")
		batch.Queue(insertSQL, 1)
		batch.Queue("commit")
		return conn.SendBatch(ctx, &batch).Close()
	}},
	{"pipeline that goes on", func(ctx context.Context, conn *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue("begin")
		batch.Queue(insertSQL, 1)
		batch.Queue("commit")
		batch.Queue("SELECT 1")
		return conn.SendBatch(ctx, &batch).Close()
	}},
}

func execAll(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func TestLoseCommitReply(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			e := newEnv(t)
			conn := connect(t, e.proxy.URL())
			e.proxy.LoseCommitReply(1)
			err := way.run(t.Context(), conn)
			if err == nil || !conn.IsClosed() || isServerError(err) {
				t.Errorf("the client saw %v", err)
			}
			if n := e.rows(t); n != 1 {
				t.Errorf("%d rows are committed", n)
			}
			if s := e.proxy.Stats(); s.Commits != 1 || s.RepliesLost != 1 || s.RequestsLost != 0 {
				t.Errorf("counted %+v", s)
			}
			if err := insert(t.Context(), connect(t, e.proxy.URL()), 2); err != nil {
				t.Errorf("the next commit: %v", err)
			}
		})
	}
}

func TestLoseCommitRequest(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			e := newEnv(t)
			conn := connect(t, e.proxy.URL())
			e.proxy.LoseCommitRequest(1)
			err := way.run(t.Context(), conn)
			if err == nil || !conn.IsClosed() || isServerError(err) {
				t.Errorf("the client saw %v", err)
			}
			// This waits for the transaction, if it is still there, and fails if it
			// commits after all.
			if err := insert(t.Context(), connect(t, e.proxy.URL()), 1); err != nil {
				t.Errorf("the next transaction: %v", err)
			}
			if s := e.proxy.Stats(); s.Commits != 1 || s.RepliesLost != 0 || s.RequestsLost != 1 {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

func isServerError(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr)
}

// The reply that is lost need not be good news.
func TestLoseReplyOfFailedCommit(t *testing.T) {
	e := newEnv(t)
	mustExec(t, e.direct, "CREATE TABLE child (i int REFERENCES t (i) DEFERRABLE INITIALLY DEFERRED)")
	conn := connect(t, e.proxy.URL())
	if err := execAll(t.Context(), conn, "BEGIN", "INSERT INTO child VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	e.proxy.LoseCommitReply(1)
	if _, err := conn.Exec(t.Context(), "COMMIT"); err == nil || isServerError(err) {
		t.Errorf("the client saw %v", err)
	}
	if s := e.proxy.Stats(); s.Commits != 0 || s.RepliesLost != 1 {
		t.Errorf("counted %+v", s)
	}
}

// What looks like a COMMIT and is none is left alone.
func TestFaultsLeaveOthersAlone(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	e.proxy.LoseCommitReply(1)
	e.proxy.LoseCommitRequest(1)
	for _, sql := range []string{
		"DO $$ BEGIN PERFORM 1; END; $$",
		"BEGIN", "INSERT INTO t VALUES (1, 'commit')", "PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'",
		"BEGIN", "SAVEPOINT commit", "RELEASE commit", "ROLLBACK",
		"SELECT 'commit' AS commit",
	} {
		mustExec(t, conn, sql)
	}
	var batch pgx.Batch
	batch.Queue("BEGIN")
	batch.Queue("SELECT no_such_column")
	batch.Queue("ROLLBACK")
	if err := conn.SendBatch(t.Context(), &batch).Close(); !isServerError(err) {
		t.Errorf("the batch ended with %v", err)
	}
	if s := e.proxy.Stats(); s.RepliesLost+s.RequestsLost != 0 {
		t.Errorf("counted %+v", s)
	}
}

func TestDelayCommitReply(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	e.proxy.DelayCommitReply(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- insert(ctx, conn, 1) }()
	testenv.Eventually(t, "the row is committed", func() bool { return e.rows(t) == 1 })
	select {
	case err := <-result:
		t.Fatalf("the reply was not delayed: %v", err)
	default:
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the client saw %v", err)
	}

	const delay = 30 * time.Millisecond
	e.proxy.DelayCommitReply(delay)
	conn = connect(t, e.proxy.URL())
	began := time.Now()
	if err := insert(t.Context(), conn, 2); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("it took %v", took)
	}
}

func TestFreeze(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	victim, deserter := connect(t, e.proxy.URL()), connect(t, e.proxy.URL())
	e.proxy.Freeze()
	result := make(chan error, 2)
	go func() { result <- insert(t.Context(), conn, 1) }()
	// The end of a connection is as silent as everything else.
	go func() { result <- victim.PgConn().WaitForNotification(t.Context()) }()
	mustExec(t, e.direct, "SELECT pg_terminate_backend($1)", victim.PgConn().PID())
	// So is the end of a client.
	gone := deserter.PgConn().PID()
	if err := deserter.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	frozen, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(frozen, e.proxy.URL()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a new connection: %v", err)
	}
	select {
	case err := <-result:
		t.Errorf("something came through: %v", err)
	default:
	}
	if n := e.rows(t); n != 0 {
		t.Errorf("%d rows are committed", n)
	}
	if !e.hasBackend(t, gone) {
		t.Error("the server noticed that a client had gone")
	}
	e.proxy.Thaw()
	testenv.Eventually(t, "the server notices", func() bool { return !e.hasBackend(t, gone) })
	var ok, ended int
	for range 2 {
		if err := <-result; err == nil {
			ok++
		} else {
			ended++
		}
	}
	if ok != 1 || ended != 1 || e.rows(t) != 1 {
		t.Errorf("after the thaw: %d ok, %d ended, %d rows", ok, ended, e.rows(t))
	}
	connect(t, e.proxy.URL())
}

// hasBackend reports whether the server still has the process of a connection.
func (e *env) hasBackend(t *testing.T, pid uint32) bool {
	t.Helper()
	var exists bool
	err := e.direct.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&exists)
	if err != nil {
		t.Fatal(err)
	}
	return exists
}

func TestCloseWhileFrozen(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	e.proxy.Freeze()
	result := make(chan error, 1)
	go func() { result <- insert(context.Background(), conn, 1) }()
	if err := e.proxy.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("the insert came through")
	}
}

func TestCut(t *testing.T) {
	e := newEnv(t)
	for name, cut := range map[string]func(){
		"now":   e.proxy.CutAll,
		"later": func() { e.proxy.CutAfter(time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			conns := []*pgx.Conn{connect(t, e.proxy.URL()), connect(t, e.proxy.URL())}
			cut()
			for _, conn := range conns {
				if _, err := conn.Exec(t.Context(), "SELECT pg_sleep(20)"); err == nil {
					t.Error("a connection was not cut")
				}
			}
			connect(t, e.proxy.URL())
		})
	}
}

// Every outcome of a run with random faults is one of three, and the same seed gives
// the same run.
func TestRandomFaultsReplay(t *testing.T) {
	run := func(seed uint64) (outcomes []string) {
		e := newEnv(t)
		e.proxy.SetRandomFaults(pgproxy.RandomFaults{
			Seed: seed, LoseCommitReply: 0.2, LoseCommitRequest: 0.2, DelayCommitReply: 0.2, MaxDelay: time.Millisecond,
		})
		var conn *pgx.Conn
		rows := 0
		for i := range 40 {
			if conn == nil || conn.IsClosed() {
				conn = connect(t, e.proxy.URL())
			}
			err := insert(t.Context(), conn, i)
			committed := e.rows(t) > rows
			rows = e.rows(t)
			outcomes = append(outcomes, fmt.Sprintf("error %t, committed %t", err != nil, committed))
		}
		s := e.proxy.Stats()
		count := func(outcome string) (n int) {
			for _, o := range outcomes {
				if o == outcome {
					n++
				}
			}
			return n
		}
		if s.RepliesLost == 0 || s.RequestsLost == 0 ||
			s.RepliesLost != count("error true, committed true") ||
			s.RequestsLost != count("error true, committed false") ||
			s.Commits != rows {
			t.Errorf("seed %d: counted %+v, saw %v", seed, s, outcomes)
		}
		return outcomes
	}
	first := run(7)
	if !slices.Equal(first, run(7)) {
		t.Error("the same seed gave another run")
	}
	if slices.Equal(first, run(8)) {
		t.Error("another seed gave the same run")
	}
}

func TestLatency(t *testing.T) {
	e := newEnv(t)
	conn := connect(t, e.proxy.URL())
	const latency = 500 * time.Microsecond
	// The fastest of many: what a busy machine does to the others says nothing.
	fastest := func() time.Duration {
		took := time.Hour
		for range 30 {
			began := time.Now()
			mustExec(t, conn, "SELECT 1")
			took = min(took, time.Since(began))
		}
		return took
	}
	const much = 300 * time.Microsecond
	added := time.Hour
	for round := 0; round < 200 && added > latency+much; round++ { // until the machine gives it a moment
		e.proxy.SetLatency(0)
		without := fastest()
		e.proxy.SetLatency(latency)
		with := fastest()
		t.Logf("a round trip takes %v, with %v of latency %v: %v more than asked for", without, latency, with, with-without-latency)
		if with < latency {
			t.Fatalf("a round trip with %v of latency takes %v", latency, with)
		}
		added = min(added, with-without)
	}
	if added > latency+much {
		t.Errorf("%v were added, not %v", added, latency)
	}
	// A pipeline pays once. The latency is large, so that a busy machine is hardly an excuse.
	const large = 20 * time.Millisecond
	e.proxy.SetLatency(large)
	for try := 1; ; try++ {
		var batch pgx.Batch
		for range 100 {
			batch.Queue("SELECT 1")
		}
		before := e.proxy.Stats()
		began := time.Now()
		if err := conn.SendBatch(t.Context(), &batch).Close(); err != nil {
			t.Fatal(err)
		}
		trips, took := e.proxy.Stats().Since(before).RoundTrips, time.Since(began)
		if took < large {
			t.Errorf("a pipeline of 100 took %v", took)
		}
		if trips <= 2 && took <= 50*large {
			break
		}
		if try == 5 { // the client itself may stand still in the middle of what it sends
			t.Fatalf("a pipeline of 100 made %d trips and took %v", trips, took)
		}
	}
	e.proxy.SetLatency(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := conn.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("across an hour: %v", err)
	}
}
