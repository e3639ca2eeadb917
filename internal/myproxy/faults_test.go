package myproxy_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/mysql"
)

const insertOne = "INSERT INTO t (i) VALUES (1)"

// ways are the ways in which a client can send a transaction that inserts row 1.
var ways = []struct {
	name string
	run  func(t *testing.T, e *env) error
}{
	{"text", func(t *testing.T, e *env) error { return insert(t.Context(), e.connect(t, ""), 1) }},
	{"text, in small letters and with a semicolon", func(t *testing.T, e *env) error {
		return execAll(t.Context(), e.connect(t, ""), "begin", insertOne, " commit work ; ")
	}},
	{"without autocommit", func(t *testing.T, e *env) error {
		return execAll(t.Context(), e.connect(t, "autocommit=0"), insertOne, "COMMIT")
	}},
	{"several statements", func(t *testing.T, e *env) error {
		return execAll(t.Context(), e.connect(t, "multiStatements=true"), "BEGIN; "+insertOne+"; COMMIT")
	}},
	{"several statements, and one more", func(t *testing.T, e *env) error {
		return readAll(t.Context(), e.connect(t, "multiStatements=true"), "SELECT 1; BEGIN; "+insertOne+"; COMMIT; SELECT 2")
	}},
	{"prepared", func(t *testing.T, e *env) error {
		conn := e.connect(t, "")
		commit, err := conn.PrepareContext(t.Context(), "COMMIT")
		if err != nil {
			return err
		}
		defer commit.Close()
		if err := execAll(t.Context(), conn, "BEGIN", insertOne); err != nil {
			return err
		}
		_, err = commit.ExecContext(t.Context())
		return err
	}},
	{"commands sent at once", func(t *testing.T, e *env) error {
		return e.pipeline(t, "BEGIN", insertOne, "COMMIT")
	}},
	{"commands sent at once, and one more", func(t *testing.T, e *env) error {
		return e.pipeline(t, "BEGIN", insertOne, "COMMIT", "DO 1")
	}},
}

// pipeline sends queries without waiting for the answers in between, on a connection that
// the driver has made, and reads as many answers.
func (e *env) pipeline(t *testing.T, queries ...string) error {
	t.Helper()
	config, err := mysql.ParseURL(e.proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	var socket net.Conn
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		socket, err = dialer.DialContext(ctx, network, address)
		return socket, err
	}
	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connector.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var packets []byte
	for _, query := range queries {
		n := 1 + len(query)
		packets = append(packets, byte(n), byte(n>>8), 0, 0, 3)
		packets = append(packets, query...)
	}
	if _, err := socket.Write(packets); err != nil {
		return err
	}
	for range queries {
		var header [4]byte
		if _, err := io.ReadFull(socket, header[:]); err != nil {
			return err
		}
		payload := make([]byte, int(header[0])+int(header[1])<<8)
		if _, err := io.ReadFull(socket, payload); err != nil {
			return err
		}
		if payload[0] != 0 {
			return &driver.MySQLError{Message: string(payload)}
		}
	}
	return nil
}

func TestPipelineIsOneTrip(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		if err := e.pipeline(t, "BEGIN", insertOne, "COMMIT", "DO 1"); err != nil {
			t.Fatal(err)
		}
		if s := e.proxy.Stats(); s.RoundTrips != 1 || s.Commits != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

func isServerError(err error) bool {
	var answer *driver.MySQLError
	return errors.As(err, &answer)
}

func TestLoseCommitReply(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			byTurns(t, func(t *testing.T, e *env) {
				e.proxy.LoseCommitReply(1)
				if err := way.run(t, e); err == nil || isServerError(err) {
					t.Errorf("the client saw %v", err)
				}
				if n := e.rows(t); n != 1 {
					t.Errorf("%d rows are committed", n)
				}
				if s := e.proxy.Stats(); s.Commits != 1 || s.RepliesLost != 1 || s.RequestsLost != 0 {
					t.Errorf("counted %+v", s)
				}
				if err := insert(t.Context(), e.connect(t, ""), 2); err != nil {
					t.Errorf("the next commit: %v", err)
				}
			})
		})
	}
}

func TestLoseCommitRequest(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			byTurns(t, func(t *testing.T, e *env) {
				e.proxy.LoseCommitRequest(1)
				if err := way.run(t, e); err == nil || isServerError(err) {
					t.Errorf("the client saw %v", err)
				}
				// This waits for the transaction, if it is still there, and fails if it
				// commits after all.
				if err := insert(t.Context(), e.connect(t, ""), 1); err != nil {
					t.Errorf("the next transaction: %v", err)
				}
				if s := e.proxy.Stats(); s.Commits != 1 || s.RepliesLost != 0 || s.RequestsLost != 1 {
					t.Errorf("counted %+v", s)
				}
			})
		})
	}
}

// What looks like a COMMIT and is none is left alone.
func TestFaultsLeaveOthersAlone(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		conn := e.connect(t, "multiStatements=true")
		e.proxy.LoseCommitReply(1)
		e.proxy.LoseCommitRequest(1)
		err := execAll(t.Context(), conn,
			"BEGIN", "INSERT INTO t VALUES (1, '; commit;')", "SAVEPOINT commits", "RELEASE SAVEPOINT commits", "ROLLBACK",
			"BEGIN", "INSERT INTO t VALUES (2, 'commit')", "CREATE TABLE u (i int)",
			"SELECT 'commit' AS `commit`; SELECT 1")
		if err != nil {
			t.Error(err)
		}
		if s := e.proxy.Stats(); s.RepliesLost+s.RequestsLost != 0 || s.Commits != 1 || s.Rollbacks != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

func TestDelayCommitReply(t *testing.T) {
	e := newEnv(t, testenv.MariaDB(t).NewDatabase(t))
	e.proxy.DelayCommitReply(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := e.connect(t, "")
	result := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, "BEGIN")
		if err == nil {
			_, err = conn.ExecContext(ctx, insertOne)
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, "COMMIT")
		}
		result <- err
	}()
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
}

func TestFreezeAndCut(t *testing.T) {
	e := newEnv(t, testenv.MariaDB(t).NewDatabase(t))
	conn := e.connect(t, "")
	e.proxy.Freeze()
	result := make(chan error, 1)
	go func() { result <- insert(context.Background(), conn, 1) }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := open(t, e.proxy.URL()).PingContext(ctx); err == nil {
		t.Error("a new connection was answered")
	}
	if n := e.rows(t); n != 0 {
		t.Errorf("%d rows are committed", n)
	}
	e.proxy.Thaw()
	if err := <-result; err != nil || e.rows(t) != 1 {
		t.Errorf("after the thaw: %d rows, %v", e.rows(t), err)
	}
	e.proxy.CutAfter(time.Millisecond)
	if _, err := conn.ExecContext(t.Context(), "DO SLEEP(20)"); err == nil {
		t.Error("the connection was not cut")
	}
}

// A pipeline pays for the way once.
func TestLatency(t *testing.T) {
	e := newEnv(t, testenv.MariaDB(t).NewDatabase(t))
	const latency = 50 * time.Millisecond
	e.proxy.SetLatency(latency)
	began := time.Now()
	conn := e.connect(t, "")
	if took := time.Since(began); took < latency {
		t.Errorf("connecting took %v", took)
	}
	for _, test := range []struct {
		trips int
		run   func() error
	}{
		{3, func() error { return execAll(t.Context(), conn, "DO 1", "DO 2", "DO 3") }},
		{1, func() error { return e.pipeline(t, slices.Repeat([]string{"DO 1"}, 200)...) }},
	} {
		began := time.Now()
		if err := test.run(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Duration(test.trips)*latency || took > time.Duration(test.trips+100)*latency {
			t.Errorf("%d trips took %v", test.trips, took)
		}
	}
}

// Every outcome of a run with random faults is one of three, and the same seed gives
// the same run.
func TestRandomFaultsReplay(t *testing.T) {
	run := func(seed uint64) (outcomes []string) {
		e := newEnv(t, testenv.MariaDB(t).NewDatabase(t))
		e.proxy.SetRandomFaults(myproxy.RandomFaults{
			Seed: seed, LoseCommitReply: 0.2, LoseCommitRequest: 0.2, DelayCommitReply: 0.2, MaxDelay: time.Millisecond,
		})
		var conn *sql.Conn
		rows, lost, unknown := 0, 0, 0
		for i := range 40 {
			if conn == nil {
				conn = e.connect(t, "")
			}
			err := insert(t.Context(), conn, i)
			if err != nil {
				conn = nil
			}
			committed := e.rows(t) > rows
			rows = e.rows(t)
			switch {
			case err != nil && committed:
				unknown++
			case err != nil:
				lost++
			}
			outcomes = append(outcomes, fmt.Sprintf("error %t, committed %t", err != nil, committed))
		}
		s := e.proxy.Stats()
		if unknown == 0 || lost == 0 || s.RepliesLost != unknown || s.RequestsLost != lost || s.Commits != rows {
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
