package mysql_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// A procedure that was dropped, or that the account may not execute any more, is no failure of
// the messages that meet it, and later ones do without.
func TestProcedureThatCannotBeCalledIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"own": true, "a caller's": false} {
		for _, procedure := range []string{"begin", "complete", "look", "emit_complete"} {
			if own && procedure == "begin" { // it is for others
				continue
			}
			for what, withdraw := range map[string]string{
				"dropped": "DROP PROCEDURE %[1]s", // and with it the grants
				"gone":    "DROP PROCEDURE %[1]s",
				"denied":  "REVOKE EXECUTE ON PROCEDURE %[1]s FROM %[2]s",
			} {
				t.Run(fmt.Sprintf("%s/%s %s", name, procedure, what), func(t *testing.T) {
					t.Parallel()
					u := newUncalled(t, own)
					if what == "gone" {
						u.exec(fmt.Sprintf("GRANT EXECUTE ON * TO %s", u.account))
					}
					u.exec("INSERT INTO millpond_inbox (consumer, message_id, status, completed_at) SELECT id, 'taken', 2, 0 FROM millpond_consumer")
					withdraw := func() { u.exec(fmt.Sprintf(withdraw, "millpond_"+procedure, u.account)) }
					if procedure == "complete" || procedure == "emit_complete" {
						a := u.said(t)
						withdraw()
						err := a.Commit(t.Context())
						require.ErrorIs(t, err, stores.ErrNotCommitted)
						require.ErrorIs(t, a.(stores.Interruptible).Interrupted(), stores.ErrUnavailable)
					} else {
						withdraw()
						claim := claimOf("taken")
						_, _, err := u.Begin(t.Context(), claim)
						require.ErrorIs(t, err, stores.ErrUnavailable)
						require.ErrorContains(t, err, "millpond migrate up")
					}
					_, v, err := u.Begin(t.Context(), claimOf("taken"))
					require.NoError(t, err)
					require.Equal(t, stores.Duplicate, v.Outcome)
					require.NoError(t, u.said(t).Commit(t.Context()))
					var outputs int
					require.NoError(t, u.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_outbox").Scan(&outputs))
					require.Equal(t, 1, outputs)
					require.Equal(t, 1, strings.Count(u.log.String(), "a procedure cannot be called"), u.log)
					require.Contains(t, u.log.String(), "millpond_"+procedure)
				})
			}
		}
	}
}

// uncalled is a store whose account has rights of its own.
type uncalled struct {
	*mysql.Store
	log     *bytes.Buffer
	account string
	exec    func(text string)
}

func newUncalled(t *testing.T, own bool) uncalled {
	t.Helper()
	config := mustParse(t, onMySQL.shared(t).NewDatabase(t))
	admin := openDB(t, config, nil)
	u := uncalled{log: new(bytes.Buffer), account: "u" + strings.ToLower(rand.Text()[:16]), exec: func(text string) {
		_, err := admin.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}}
	migrator, err := mysql.New(admin, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context())
	require.NoError(t, err)
	u.exec("CREATE USER " + u.account)
	t.Cleanup(func() { _, _ = admin.Exec("DROP USER " + u.account) })
	u.exec(fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, ALTER ROUTINE ON `%s`.* TO %s", config.DBName, u.account))
	for _, procedure := range []string{"begin", "complete", "look", "emit_complete"} {
		u.exec("GRANT EXECUTE ON PROCEDURE millpond_" + procedure + " TO " + u.account)
	}
	service := config.Clone()
	service.User, service.Passwd = u.account, ""
	settings := mysql.Config{Logger: slog.New(slog.NewTextHandler(u.log, nil))}
	if own {
		u.Store, err = mysql.OpenDB(t.Context(), service, settings)
	} else {
		u.Store, err = mysql.New(openDB(t, service, nil), settings)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Close() })
	require.NoError(t, u.Register(t.Context(), stores.Registration{Consumer: billing}))
	u.log.Reset() // of what it has to say about the server
	return u
}

// said is an attempt that says one thing.
func (u uncalled) said(t *testing.T) stores.Attempt {
	t.Helper()
	a := begin(t, u, claimOf(rand.Text()))
	require.NoError(t, a.(stores.Emitter).Emit([]stores.Output{{ID: "id", Topic: "topic"}}))
	return a
}
