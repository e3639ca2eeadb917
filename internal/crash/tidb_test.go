package crash

import (
	"context"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// tidbDialect is MySQL's without procedures, and without transactions that only read, which TiDB
// refuses. What fails there undoes itself alone.
var tidbDialect = func() dialect {
	d := mysqlDialect
	d.fail, d.procedures, d.proxy, d.endSessions = takeAgain, nil, nil, nil
	d.sessions.settings = [][]string{{"SET SESSION sql_mode = ''"}}
	return d
}()

func openTiDB(ctx context.Context, rawURL string, worker int) (*backend, error) {
	b, err := openMySQL(ctx, rawURL, worker)
	if err != nil {
		return nil, err
	}
	*b = *sqlBackendOfMySQL(b.store, b.db, tidbDialect)
	return b, nil
}

// TestRandomOnTiDB is TestRandom without kills of the server, and without a network that loses
// answers: the server has part of its data in memory alone, and a session that is ended can end
// the server. It is for a soak, and for a server at MILLPOND_TEST_TIDB_URL.
func TestRandomOnTiDB(t *testing.T) {
	t.Parallel()
	s := onMySQLAs(t, "tidb", testenv.TiDB(t).NewDatabase(t), tidbDialect)
	messages, kills := 80, 14
	if rotation.Kills(t) > 0 {
		messages, kills = 600, 100
	}
	r := randomTrial(s, seedOf(t), messages, kills).run(t)
	r.must(t)
	t.Log(r.summary())
	t.Logf("%d workers killed", r.kills(fleet.SIGKILL))
}
