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
		}
	}()
	db, err := sql.Open("postgres", "postgres://shop@"+listener.Addr().String()+"/shop?sslmode=disable")
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
			if !errors.Is(err, stores.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s waits for the login", name)
		}
		cancel()
	}
}
