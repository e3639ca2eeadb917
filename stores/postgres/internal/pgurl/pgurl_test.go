package pgurl_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

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
		"pgbouncer=session":             {fails: "pgbouncer=transaction"},
		"millpond_shema=typo":           {fails: "millpond_shema"},
		"default_query_exec_mode=what?": {fails: "what?"},
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

// What is refused at each address, and once more without encryption, is said once.
func TestConnectErrorSaysEachReasonOnce(t *testing.T) {
	t.Parallel()
	err := pgurl.ConnectError("db", errors.New("dial: refused\n\tdial: refused\ndial: no route"))
	if want := "postgres: cannot connect to db: dial: refused; dial: no route"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
