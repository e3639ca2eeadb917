package testenv

import (
	"os"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/internal/testenv/tidb"
)

// TiDBVariable asks for a TiDB server to be built and started, if it is not empty.
const TiDBVariable = "MILLPOND_TEST_TIDB"

// TiDB returns the TiDB server at MILLPOND_TEST_TIDB_URL, whose account may create databases
// and set global variables; else one that is built and started if TiDBVariable asks for it, and
// ends with the test. Without either the test is skipped.
func TiDB(tb testing.TB) *MySQLServer {
	tb.Helper()
	if url := os.Getenv(mysql.TiDB.URLVariable()); url != "" {
		return &MySQLServer{url: url}
	}
	if os.Getenv(TiDBVariable) == "" {
		//nolint:forbidigo // the build takes a quarter of an hour; the dialect is tested everywhere
		tb.Skipf("set %s=1 to build and start a TiDB server, which takes a quarter of an hour, or %s to the address of one", TiDBVariable, mysql.TiDB.URLVariable())
	}
	server, err := tidb.Start(tb.Context())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Close() }()
		select {
		case <-done:
		case <-time.After(cleanupTimeout):
			tb.Error("testenv: the TiDB server does not end")
		}
	})
	return &MySQLServer{url: server.URL()}
}
