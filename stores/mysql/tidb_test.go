package mysql_test

import (
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	testmysql "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/storetest"
)

var onTiDB = product{Product: testmysql.TiDB, shared: testenv.TiDB}

// TestConformanceOnTiDB is for a soak, and for a server at MILLPOND_TEST_TIDB_URL.
func TestConformanceOnTiDB(t *testing.T) {
	t.Parallel()
	server := testenv.TiDB(t)
	db, err := testmysql.Open(server.URL())
	require.NoError(t, err)
	defer db.Close()
	set := func(text string) {
		_, err := db.ExecContext(t.Context(), "SET GLOBAL "+text)
		require.NoError(t, err, text)
	}
	set("tidb_enable_noop_functions = ON") // accepts more, and does nothing
	set("tidb_txn_mode = 'optimistic'")    // both handlers would run
	sessionsHaveTheirOwnSettings(t, server.NewDatabase(t))
	set("tidb_txn_mode = 'pessimistic'")
	storetest.Run(t, harnessOfTiDB(server.NewDatabase))
}

// Whatever the globals say, the second claim of a key does not run beside the first.
func sessionsHaveTheirOwnSettings(t *testing.T, address string) {
	t.Helper()
	s, err := mysql.OpenDB(t.Context(), mustParse(t, address), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	require.False(t, s.Capabilities().OutputsUnordered)
	require.Equal(t, "tidb", s.Capabilities().System)
	claim := claimOf("twice")
	first := begin(t, s, claim)
	_, verdict, err := s.Begin(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, stores.InFlight, verdict.Outcome)
	require.NoError(t, first.Commit(t.Context()))
	var mode string
	require.NoError(t, s.DB().QueryRowContext(t.Context(), "SELECT @@SESSION.tidb_txn_mode").Scan(&mode))
	require.Equal(t, "pessimistic", mode)
	callers, err := mysql.New(openDB(t, mustParse(t, address), nil), mysql.Config{})
	require.NoError(t, err)
	require.ErrorContains(t, callers.Validate(t.Context()), "use Open or OpenDB")
}

func harnessOfTiDB(address func(testing.TB) string) storetest.Harness {
	h := harness(onTiDB, true)
	h.Largest, h.ThroughUnknown = 5<<20, true
	h.NoBatches = "they were not tested there"
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		return newDatabase(tb, address(tb), true).Database
	}
	delete(h.Acts, storetest.ActServerTimeout)
	h.Lacks[storetest.ActServerTimeout] = "the server ends a statement by its own timeout without an error"
	delete(h.Acts, storetest.ActProcedureCommit)
	delete(h.Unpreventable, storetest.ActProcedureCommit)
	h.Lacks[storetest.ActProcedureCommit] = "there are no procedures"
	return h
}

// noEffect is what TiDB accepts without effect, at least under tidb_enable_noop_functions, or
// refuses. What must not be said there is refused here.
var noEffect = regexp.MustCompile(`(?i)SKIP LOCKED|FOR SHARE|LOCK IN SHARE MODE|^CALL |^KILL |PROCEDURE|READ UNCOMMITTED|SERIALIZABLE|BEGIN NOT ATOMIC|SET STATEMENT|performance_schema\.\w+_lock|innodb_trx`)

// asTiDB stands before a server of MySQL's that locks as TiDB does where the store asks it to,
// and refuses what TiDB would not do. What the suite says itself has its name in the text.
func asTiDB(t *testing.T, server string, refused func(text string)) string {
	t.Helper()
	return between(t, server, func(text string) (string, error) {
		if clause := noEffect.FindString(text); clause != "" && !strings.Contains(text, "storetest") {
			refused(text)
			return "", errors.New("TiDB does not do what " + clause + " says")
		}
		return strings.NewReplacer(
			"SELECT VERSION(), @@version_comment", "SELECT '8.0.11-TiDB-v8.5.4', 'TiDB Server'",
			"CONCAT('' /*T! , @@SESSION.tidb_txn_mode, ' ', @@SESSION.tidb_constraint_check_in_place_pessimistic */)", "'pessimistic 1'",
			"@@SESSION.tidb_txn_entry_size_limit", "0", "SHOW CREATE TABLE", "SELECT 'outbox', 'AUTO_ID_CACHE=1 ' FROM DUAL -- ",
		).Replace(text), nil
	})
}

// The dialect for TiDB, on a server that really locks, and that refuses what TiDB takes for
// nothing.
func TestConformanceOfTheDialectForTiDB(t *testing.T) {
	t.Parallel()
	server := onMySQL.server(t)
	h := harnessOfTiDB(func(tb testing.TB) string {
		tb.Helper()
		u, err := url.Parse(server.NewDatabase(tb))
		require.NoError(tb, err)
		u.Host = asTiDB(t, u.Host, func(text string) { t.Errorf("TiDB would do nothing: %s", text) })
		return u.String()
	})
	if !rotation.Soak() {
		h.Groups = rotation.Turn(t, 1, "claim", "race", "resolve", "take", "due", "order", "change", "decide", "leased", "handler", "inbox", "parked", "outbox", "outputs", "lease", "retention", "erase")
	}
	storetest.Run(t, h)
}
