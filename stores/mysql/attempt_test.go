package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// another is a store of another process, on connections of its own.
func (c counted) another(t *testing.T, change func(*driver.Config)) *mysql.Store {
	t.Helper()
	config := mustParse(t, c.proxy.URL())
	if change != nil {
		change(config)
	}
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	return s
}

// effects counts what is committed, besides the rows of the inbox.
func (c counted) effects(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n))
	return n
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The reply to a COMMIT is lost, or the request: the store says that it does not know,
// and can find out.
func TestUnknownCommitIsResolved(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, own := range []bool{true, false} {
			c := newCounted(t, p, own)
			for _, lost := range []struct {
				what      string
				lose      func(int)
				committed bool
			}{
				{"reply", func(n int) { c.proxy.LoseCommitReply(n) }, true},
				{"request", func(n int) { c.proxy.LoseCommitRequest(n) }, false},
			} {
				what := fmt.Sprintf("own %t, %s", own, lost.what)
				before := c.effects(t)
				claim := claimOf(lost.what)
				a := begin(t, c, claim)
				require.NoError(t, exec(t.Context(), a, effect))
				lost.lose(1)
				require.ErrorIs(t, a.Commit(t.Context()), stores.ErrCommitUnknown, what)
				committed, err := c.Resolve(within(t, 20*time.Second), claim.Key)
				require.NoError(t, err, what)
				assert.Equal(t, lost.committed, committed, what)
				after := c.effects(t)
				assert.Equal(t, lost.committed, after == before+1, what)
				if lost.committed {
					continue
				}
				a = begin(t, c, claim)
				require.NoError(t, a.Commit(t.Context()), what)
			}
		}
	})
}

// A goroutine that a handler leaves behind in a statement holds neither the commit nor
// the key.
func TestStatementLeftBehindIsKilled(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		a := begin(t, c, claimOf("leak"))
		require.NoError(t, exec(t.Context(), a, effect))
		tx, _ := mysql.TxFromContext(a.Context(t.Context()))
		var id int64
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = tx.ExecContext(context.Background(), "INSERT INTO effect SELECT SLEEP(120)")
		}()
		require.Eventually(t, func() bool {
			var n int
			err := c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE id = ? AND info LIKE '%SLEEP%'", id).Scan(&n)
			return err == nil && n == 1
		}, 20*time.Second, 5*time.Millisecond)
		err := a.Commit(within(t, 20*time.Second))
		require.ErrorIs(t, err, stores.ErrNotCommitted)
		require.ErrorIs(t, err, stores.ErrTxBusy)
		<-ended
		var again stores.Attempt
		require.Eventually(t, func() bool {
			var err error
			again, _, err = c.Begin(t.Context(), claimOf("leak"))
			return err == nil && again != nil
		}, 20*time.Second, 5*time.Millisecond)
		require.NoError(t, exec(t.Context(), again, effect))
		require.NoError(t, again.Commit(t.Context()))
		assert.Equal(t, 1, c.effects(t))
	})
}

// A process that dies after its handler has committed in the middle leaves a row that is
// neither completed nor free: the message waits, and is then to be kept for people.
func TestHalfCommittedMessageNeitherRunsAgainNorCountsAsDone(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		claim := claimOf("half")
		a := begin(t, c, claim)
		require.NoError(t, exec(t.Context(), a, effect))
		require.NoError(t, exec(t.Context(), a, "PREPARE ending FROM 'COMMIT'"))
		require.NoError(t, exec(t.Context(), a, "EXECUTE ending"))
		c.proxy.CutAll() // as if the process had died

		other := c.another(t, nil)
		_, v, err := other.Begin(t.Context(), claim)
		require.NoError(t, err)
		assert.Equal(t, stores.InFlight, v.Outcome)
		completed, err := other.Resolve(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.False(t, completed)
		claim.Bound = time.Millisecond
		require.Eventually(t, func() bool {
			_, v, err = other.Begin(t.Context(), claim)
			return err == nil && v.Outcome == stores.Conflict
		}, 20*time.Second, 5*time.Millisecond)
		assert.Equal(t, claim.Fingerprint, v.Fingerprint)
		assert.Equal(t, 1, c.effects(t))
	})
}

// deadlocked makes the attempt the victim of a deadlock, and returns what it was told.
func (c counted) deadlocked(t *testing.T, a stores.Attempt) error {
	t.Helper()
	for _, text := range []string{"CREATE TABLE IF NOT EXISTS storetest_pair (id INT PRIMARY KEY, n INT NOT NULL)", "CREATE TABLE IF NOT EXISTS storetest_many (n BIGINT)", "INSERT IGNORE INTO storetest_pair VALUES (1, 0), (2, 0)"} {
		_, err := c.admin.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	tx, _ := mysql.TxFromContext(a.Context(t.Context()))
	return deadlock(t.Context(), tx, c.admin)
}

func TestDeadlockIsNotTheHandlersFault(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, hidden := range []bool{true, false} {
			a := begin(t, c, claimOf("deadlock"))
			require.NoError(t, exec(t.Context(), a, effect))
			err := c.deadlocked(t, a)
			var number *driver.MySQLError
			require.ErrorAs(t, err, &number)
			require.Equal(t, uint16(1213), number.Number)
			require.NoError(t, exec(t.Context(), a, effect)) // in another transaction
			if hidden {
				err := a.Commit(t.Context())
				require.ErrorIs(t, err, stores.ErrNotCommitted)
				require.ErrorIs(t, err, stores.ErrTxAborted)
				require.NotErrorIs(t, err, stores.ErrTxEscaped)
			} else {
				require.NoError(t, a.Rollback(t.Context()))
			}
			interrupted, ok := a.(stores.Interruptible)
			require.True(t, ok)
			require.ErrorAs(t, interrupted.Interrupted(), &number)
			require.Zero(t, c.effects(t))
		}
	})
}

// Newer MariaDB refuses to change what has changed since it was read.
func TestChangedRecordIsNotTheHandlersFault(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateNewMariaDB(t)
	config := mustParse(t, server.NewDatabase(t))
	admin := openDB(t, config, nil)
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	for _, text := range []string{"CREATE TABLE stock (n INT)", "INSERT INTO stock VALUES (1)"} {
		_, err := admin.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	a := begin(t, s, claimOf("changed"))
	tx, _ := mysql.TxFromContext(a.Context(t.Context()))
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT n FROM stock").Scan(&n))
	_, err = admin.ExecContext(t.Context(), "UPDATE stock SET n = 2")
	require.NoError(t, err)
	err = exec(t.Context(), a, "UPDATE stock SET n = n + 1")
	var number *driver.MySQLError
	require.ErrorAs(t, err, &number)
	require.Equal(t, uint16(1020), number.Number)
	require.NoError(t, a.Rollback(t.Context()))
	require.Error(t, a.(stores.Interruptible).Interrupted())
	require.NoError(t, begin(t, s, claimOf("changed")).Commit(t.Context()))
}

// No setting of the driver's about counting rows changes what is proven.
func TestFoundRowsOrChangedRows(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, own := range []bool{true, false} {
			c := newCounted(t, p, own)
			found := func(config *driver.Config) { config.ClientFoundRows = true }
			s := c.another(t, found)
			if !own {
				var err error
				s, err = mysql.New(openDB(t, mustParse(t, c.proxy.URL()), found), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
			}
			a := begin(t, s, claimOf("found"))
			require.NoError(t, exec(t.Context(), a, effect))
			require.NoError(t, a.Commit(t.Context()))
			_, v, err := s.Begin(t.Context(), claimOf("found"))
			require.NoError(t, err)
			assert.Equal(t, stores.Duplicate, v.Outcome)

			a = begin(t, s, claimOf("gone"))
			for _, text := range []string{effect, "PREPARE ending FROM 'ROLLBACK'", "EXECUTE ending", effect} {
				require.NoError(t, exec(t.Context(), a, text))
			}
			err = a.Commit(t.Context())
			require.ErrorIs(t, err, stores.ErrNotCommitted)
			require.ErrorIs(t, err, stores.ErrTxEscaped)
			assert.Equal(t, 1, c.effects(t))
		}
	})
}

// TestNoDeadlockReachesAHandler delivers messages of which every fifth comes again at the
// same time.
func TestNoDeadlockReachesAHandler(t *testing.T) {
	t.Parallel()
	messages := 1500
	if rotation.Soak() {
		messages = 10_000
	}
	byTurns(t, func(t *testing.T, p product) {
		const workers = 16
		config := mustParse(t, p.shared(t).NewDatabase(t))
		s, err := mysql.OpenDB(t.Context(), config, mysql.Config{MaxOpenConns: workers})
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
		_, err = s.DB().ExecContext(t.Context(), "CREATE TABLE effect (id VARCHAR(100), INDEX (id))")
		require.NoError(t, err)

		deliveries := make(chan string, workers)
		go func() {
			defer close(deliveries)
			for range messages {
				id := rand.Text()
				deliveries <- id
				for mathrand.Float64() < 0.2 {
					deliveries <- id
				}
			}
		}()
		var held, failed atomic.Int64
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for id := range deliveries {
					for done := false; !done; {
						a, v, err := s.Begin(t.Context(), claimOf(id))
						switch {
						case err != nil:
							t.Errorf("Begin: %v", err)
							return
						case v.Outcome == stores.Duplicate:
							done = true
						case a == nil:
							held.Add(1)
							<-time.After(time.Millisecond) // as a delivery that is held
						default:
							if err := exec(t.Context(), a, "INSERT INTO effect VALUES ('"+id+"')"); err != nil {
								failed.Add(1)
								t.Errorf("the handler was told: %v", err)
							}
							if err := a.Commit(t.Context()); err != nil {
								t.Errorf("Commit: %v", err)
							}
							done = true
						}
					}
				}
			})
		}
		group.Wait()
		var effects, keys int
		require.NoError(t, s.DB().QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT id) FROM effect").Scan(&effects, &keys))
		assert.Equal(t, messages, effects)
		assert.Equal(t, messages, keys)
		t.Logf("%d messages, %d deliveries were held, %d handlers failed", messages, held.Load(), failed.Load())
	})
}

// Migrate goes on where it was interrupted.
func TestMigrateGoesOn(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		config := mustParse(t, p.shared(t).NewDatabase(t))
		s, err := mysql.OpenDB(t.Context(), config, mysql.Config{})
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		for _, text := range []string{"DROP TABLE millpond_audit", "DROP TABLE millpond_lease", "DELETE FROM millpond_schema WHERE version >= 2"} {
			_, err := s.DB().ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Len(t, applied, len(s.Migrations())-1)
		_, err = s.Audit(t.Context(), 0, 1)
		require.NoError(t, err)
	})
}
