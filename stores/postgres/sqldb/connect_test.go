package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// A pooler whose server is gone answers no login for minutes. lib/pq waits for that, whatever
// the context says.
func TestLoginThatIsNotAnsweredIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	nothingIsWaitedFor(t, silentServer(t, nil))
}

// Or it lets clients log in, answers no statement, and ignores requests to cancel one.
func TestStatementThatIsNotAnsweredIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	const authenticationOK, readyForQuery = "R\x00\x00\x00\x08\x00\x00\x00\x00", "Z\x00\x00\x00\x05I"
	nothingIsWaitedFor(t, silentServer(t, []byte(authenticationOK+readyForQuery)))
}

// silentServer returns the address of a server that answers the first message of a connection, and
// no other. It closes the connections of requests to cancel.
func silentServer(t *testing.T, answer []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				first := make([]byte, 1024)
				n, err := conn.Read(first)
				if err != nil || n == 16 { // the length of a request to cancel
					_ = conn.Close()
					return
				}
				_, _ = conn.Write(answer)
			}()
		}
	}()
	return listener.Addr().String()
}

func nothingIsWaitedFor(t *testing.T, address string) {
	t.Helper()
	db, err := sql.Open("postgres", "postgres://shop@"+address+"/shop?sslmode=disable&binary_parameters=yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"register": func(ctx context.Context) error {
			return store.Register(ctx, stores.Registration{Consumer: pgtest.Stock})
		},
		"validate": store.Validate,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, stores.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s waits for the server", name)
		}
		cancel()
	}
}
