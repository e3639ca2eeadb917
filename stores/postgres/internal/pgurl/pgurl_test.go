package pgurl_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/pgurl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct {
		pooled bool
		mode   pgx.QueryExecMode
		fails  string // with this in the error
	}{
		"":                      {mode: pgx.QueryExecModeCacheStatement},
		"pgbouncer=transaction": {pooled: true, mode: pgx.QueryExecModeCacheDescribe},
		"pgbouncer=transaction&default_query_exec_mode=simple_protocol": {pooled: true, mode: pgx.QueryExecModeSimpleProtocol},
		"pgbouncer=transaction&default_query_exec_mode=exec":            {pooled: true, mode: pgx.QueryExecModeExec},
		"pgbouncer=transaction&default_query_exec_mode=cache_statement": {fails: "cache_describe"},
		"pgbouncer=transaction&default_query_exec_mode=describe_exec":   {fails: "cache_describe"},
		"pgbouncer=session":                     {fails: "pgbouncer=transaction"},
		"millpond_shema=typo":                   {fails: "millpond_shema"},
		"default_query_exec_mode=what?":         {fails: "what?"},
		"max_open_conns=5":                      {fails: `"max_open_conns" is for other URLs: did you mean pool_max_conns?`},
		"prefix=a_&tls=true":                    {fails: "did you mean millpond_prefix?; parameter \"tls\" is for other URLs: did you mean sslmode?"},
		"migrate=never":                         {fails: `"migrate" is for other URLs: remove it`},
		"pool_max_con=5":                        {fails: `"pool_max_con": use pool_max_conns`},
		"pool_max_conns=5&pool_ping_timeout=1s": {mode: pgx.QueryExecModeCacheStatement},
	} {
		u, err := url.Parse("postgres+sql://user:canary@127.0.0.1:5432/db?" + query)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := pgurl.Parse(u)
		if want.fails != "" {
			if err == nil || !strings.Contains(err.Error(), want.fails) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: %v", query, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		conn := parsed.Pool.ConnConfig
		if parsed.Pooled != want.pooled || conn.DefaultQueryExecMode != want.mode || conn.Host != "127.0.0.1" || len(conn.RuntimeParams) > 0 {
			t.Errorf("%s: pooled %v, mode %v, host %s, parameters %v", query, parsed.Pooled, conn.DefaultQueryExecMode, conn.Host, conn.RuntimeParams)
		}
	}
}

func TestNamesOfTheTables(t *testing.T) {
	t.Parallel()
	parsed, err := pgurl.Parse(&url.URL{Scheme: "postgres", Host: "127.0.0.1", RawQuery: "millpond_schema=inbox&millpond_prefix=p_"})
	if err != nil || parsed.Schema != "inbox" || parsed.TablePrefix != "p_" {
		t.Errorf("%+v, %v", parsed, err)
	}
}

func TestCheckOpensNothing(t *testing.T) {
	t.Parallel()
	for query, mistake := range map[string]string{
		"": "", "millpond_prefix=a-b": "TablePrefix", "pgbouncer=yes": "pgbouncer", "sslmode=verify-full&sslrootcert=/nowhere": "/nowhere",
	} {
		err := pgurl.Check("sqldb", &url.URL{Scheme: "postgresql+sql", Host: "127.0.0.1:1", RawQuery: query})
		if (err == nil) != (mistake == "") || err != nil && !strings.Contains(err.Error(), mistake) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestConnectErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Severity: "FATAL", Code: "3D000", Message: `database "shop" does not exist`}
	err := pgurl.ConnectError("db", fmt.Errorf("server error: %w", refused))
	if !strings.HasSuffix(err.Error(), "(SQLSTATE 3D000): create it, or name another in the URL") || !errors.Is(err, stores.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// What is refused at each address, and once more without encryption, is said once.
func TestConnectErrorSaysEachReasonOnce(t *testing.T) {
	t.Parallel()
	err := pgurl.ConnectError("db", errors.New("dial: refused\n\tdial: refused\ndial: no route"))
	if want := "postgres: cannot connect to db: dial: refused; dial: no route"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// By default the driver tries without TLS what it could not do with it: the second answer counts.
func TestConnectErrorLeavesOutRefusedTLS(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Severity: "FATAL", Code: "28000", Message: `role "nobody" does not exist`}
	tls := errors.New("db (db): tls error: server refused TLS connection")
	err := pgurl.ConnectError("db", errors.Join(tls, fmt.Errorf("db (db): server error: %w", refused)))
	if want := `postgres: cannot connect to db: db (db): server error: FATAL: role "nobody" does not exist (SQLSTATE 28000)`; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q, want %q", err, want)
	}
	if err := pgurl.ConnectError("db", tls); !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("%q does not say that TLS was refused", err)
	}
}
