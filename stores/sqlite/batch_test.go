package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// commits returns how many commits the write-ahead log has: the frames that end one say how
// large the file is then.
func (o opened) commits() (n int) {
	o.t.Helper()
	const header, frameHeader = 32, 24
	log, err := os.ReadFile(o.path + "-wal")
	require.NoError(o.t, err)
	page := int(binary.BigEndian.Uint32(log[8:]))
	for at := header; at+frameHeader+page <= len(log); at += frameHeader + page {
		if binary.BigEndian.Uint32(log[at+4:]) != 0 {
			n++
		}
	}
	return n
}

func (o opened) beginBatch(ids ...string) (stores.Batch, []stores.Member) {
	o.t.Helper()
	claims := make([]stores.Claim, len(ids))
	for i, id := range ids {
		claims[i] = claimOf(id)
	}
	b, err := o.BeginBatch(o.t.Context(), claims)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = b.Rollback(context.WithoutCancel(o.t.Context())) })
	return b, b.Members()
}

func (o opened) txOf(m stores.Member) *sql.Tx {
	o.t.Helper()
	tx, ok := TxFromContext(m.Context(o.t.Context()))
	require.True(o.t, ok)
	return tx
}

func TestABatchIsOneCommit(t *testing.T) {
	t.Parallel()
	o := open(t)
	before := o.commits()
	ids := make([]string, 32)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%d", i)
	}
	b, members := o.beginBatch(ids...)
	for i, m := range members {
		_, err := o.txOf(m).Exec("INSERT INTO effects VALUES (?)", ids[i])
		require.NoError(t, err)
		switch {
		case i == 31: // does not come back in time
		case i%10 == 9:
			require.NoError(t, m.Leave(t.Context()))
		default:
			require.NoError(t, m.Keep(t.Context()))
		}
	}
	require.NoError(t, members[31].Leave(t.Context()))
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, before+1, o.commits())
	o.requireCounts(28, 28)
}

// What savepoints copy is in memory in a batch, and in a file for the large changes that run alone.
func TestOnlyBatchesHaveTheirTemporaryStorageInMemory(t *testing.T) {
	t.Parallel()
	o := open(t)
	storage := func(c *conn) int64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		rows, err := c.native.QueryContext(t.Context(), "PRAGMA temp_store", nil)
		require.NoError(t, err)
		value := make([]driver.Value, 1)
		require.NoError(t, rows.Next(value))
		require.NoError(t, rows.Close())
		return value[0].(int64)
	}
	const byDefault, memory = 0, 2
	for i := range 2 {
		b, members := o.beginBatch(fmt.Sprint("batched", i))
		require.EqualValues(t, memory, storage(b.(*batch).conn))
		require.NoError(t, members[0].Keep(t.Context()))
		require.NoError(t, b.Commit(t.Context()))
		a := o.begin(claimOf(fmt.Sprint("alone", i)))
		require.EqualValues(t, byDefault, storage(a.(*attempt).conn))
		require.NoError(t, a.Commit(t.Context()))
	}
}

// Each member has a *sql.Tx of its own, which ends with its run.
func TestAMemberEndsNothingButItsOwnRun(t *testing.T) {
	t.Parallel()
	o := open(t)
	b, members := o.beginBatch("kept", "ends", "after")
	first := o.txOf(members[0])
	_, err := first.Exec("INSERT INTO effects VALUES ('kept')")
	require.NoError(t, err)
	left, err := first.Prepare("INSERT INTO effects VALUES ('late')") //nolint:sqlclosecheck // left behind on purpose
	require.NoError(t, err)
	require.NoError(t, members[0].Keep(t.Context()))
	_, err = first.Exec("INSERT INTO effects VALUES ('late')")
	require.ErrorIs(t, err, sql.ErrTxDone)
	_, err = left.Exec()
	require.Error(t, err)
	require.ErrorIs(t, members[0].Keep(t.Context()), stores.ErrTxClosed)
	require.ErrorIs(t, members[0].Leave(t.Context()), stores.ErrTxClosed)

	second := o.txOf(members[1])
	_, err = second.Exec("INSERT INTO effects VALUES ('lost')")
	require.NoError(t, err)
	require.ErrorIs(t, second.Commit(), stores.ErrTxManaged)
	err = members[1].Keep(t.Context())
	require.ErrorIs(t, err, stores.ErrTxManaged)
	require.NotErrorIs(t, err, stores.ErrBatchLost)

	third := o.txOf(members[2])
	_, err = third.Exec("INSERT OR ROLLBACK INTO " + o.dialect.Names.Table("inbox") + " SELECT * FROM " + o.dialect.Names.Table("inbox")) // one conflicts
	require.Error(t, err)
	_, err = third.Exec("INSERT INTO effects VALUES ('outside')")
	require.ErrorIs(t, err, stores.ErrTxEnded)
	require.ErrorIs(t, members[2].Keep(t.Context()), stores.ErrBatchLost)
	require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
	o.requireCounts(0, 0)
	o.complete(claimOf("kept"))
	o.requireCounts(1, 1)
}

// What a handler leaves behind fails its own message, and nobody else's.
func TestGoroutinesThatOutliveAMemberDoNotLoseTheBatch(t *testing.T) {
	t.Parallel()
	const numbers = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000) SELECT "
	for name, leaves := range map[string]func(t *testing.T, tx *sql.Tx, working *sync.WaitGroup){
		"a write": func(_ *testing.T, tx *sql.Tx, working *sync.WaitGroup) {
			working.Go(func() { _, _ = tx.Exec("INSERT INTO effects " + numbers + "'late' FROM numbers WHERE n = 100000") })
		},
		"a query": func(_ *testing.T, tx *sql.Tx, working *sync.WaitGroup) {
			working.Go(func() {
				var n int
				_ = tx.QueryRow(numbers + "count(*) FROM numbers").Scan(&n)
			})
		},
		"rows": func(t *testing.T, tx *sql.Tx, _ *sync.WaitGroup) {
			rows, err := tx.Query(numbers + "n FROM numbers") //nolint:sqlclosecheck,rowserrcheck // left open on purpose
			require.NoError(t, err)
			require.True(t, rows.Next())
		},
		"rows of a write": func(t *testing.T, tx *sql.Tx, _ *sync.WaitGroup) {
			rows, err := tx.Query("INSERT INTO effects VALUES ('late'), ('later') RETURNING note") //nolint:sqlclosecheck,rowserrcheck // left open on purpose
			require.NoError(t, err)
			require.True(t, rows.Next())
		},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fails %t", name, fails), func(t *testing.T) {
				t.Parallel()
				o := open(t)
				b, members := o.beginBatch("before", "leaves", "after")
				effect := func(i int) *sql.Tx {
					tx := o.txOf(members[i])
					_, err := tx.Exec("INSERT INTO effects VALUES (?)", fmt.Sprint(i))
					require.NoError(t, err)
					return tx
				}
				effect(0)
				require.NoError(t, members[0].Keep(t.Context()))
				var working sync.WaitGroup
				leaves(t, effect(1), &working)
				if name[0] == 'a' {
					o.waitUntilUsed(b)
				}
				if fails {
					require.NoError(t, members[1].Leave(t.Context()))
				} else {
					err := members[1].Keep(t.Context())
					require.ErrorIs(t, err, stores.ErrTxBusy)
					require.NotErrorIs(t, err, stores.ErrBatchLost)
				}
				working.Wait()
				effect(2)
				require.NoError(t, members[2].Keep(t.Context()))
				require.NoError(t, b.Commit(t.Context()))
				o.requireCounts(2, 2)
			})
		}
	}
}

// A member whose goroutine is at work for too long loses the batch, and holds nobody.
func TestAStatementThatDoesNotEndLosesTheBatch(t *testing.T) {
	t.Parallel()
	o := open(t)
	b, members := o.beginBatch("kept", "leaves")
	require.NoError(t, members[0].Keep(t.Context()))
	tx := o.txOf(members[1])
	over := make(chan error)
	go func() {
		var n int
		over <- tx.QueryRow("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers").Scan(&n)
	}()
	o.waitUntilUsed(b)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, members[1].Keep(ctx), stores.ErrBatchLost)
	require.Error(t, <-over)
	require.NoError(t, b.Rollback(t.Context()))
	o.complete(claimOf("kept"))
	o.requireCounts(1, 1)
}

// Whoever has had the transaction may close what it has prepared, or end its *sql.Tx, while
// others have it.
func TestLateEndsDoNotDisturbTheNextMembers(t *testing.T) {
	t.Parallel()
	o := open(t)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b, members := o.beginBatch(ids...)
	first := o.txOf(members[0])
	var late sync.WaitGroup
	begin := make(chan struct{})
	for range 4 {
		var prepared []*sql.Stmt
		for range 500 {
			s, err := first.Prepare("SELECT 1") //nolint:sqlclosecheck // closed late, on purpose
			require.NoError(t, err)
			prepared = append(prepared, s)
		}
		late.Go(func() {
			<-begin
			for _, s := range prepared {
				_ = s.Close()
				_, _ = s.Exec()
			}
			_ = first.Rollback()
		})
	}
	require.NoError(t, members[0].Keep(t.Context()))
	close(begin)
	for i, m := range members[1:] {
		_, err := o.txOf(m).Exec("INSERT INTO effects VALUES (?)", fmt.Sprint(i))
		require.NoError(t, err)
		require.NoError(t, m.Keep(t.Context()), i)
	}
	late.Wait()
	require.NoError(t, b.Commit(t.Context()))
	o.requireCounts(len(ids), len(ids)-1)
}

// waitUntilUsed waits until a statement runs.
func (o opened) waitUntilUsed(b stores.Batch) {
	o.t.Helper()
	mu := &b.(*batch).conn.mu
	require.Eventually(o.t, func() bool {
		if mu.TryLock() {
			mu.Unlock()
			return false
		}
		return true
	}, 10*time.Second, time.Microsecond)
}

func TestAHungMemberIsCut(t *testing.T) {
	t.Parallel()
	o := open(t)
	b, members := o.beginBatch("kept", "hangs")
	o.txOf(members[0])
	require.NoError(t, members[0].Keep(t.Context()))
	tx := o.txOf(members[1])
	over := make(chan error)
	go func() {
		var n int
		over <- tx.QueryRow("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT count(*) FROM numbers").Scan(&n)
	}()
	o.waitUntilUsed(b)
	b.Cut()
	require.ErrorIs(t, <-over, sql.ErrTxDone)
	require.NoError(t, b.Rollback(t.Context())) // returns when what was cut has ended
	o.complete(claimOf("kept"))
	_, err := tx.Exec("INSERT INTO effects VALUES ('late')")
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.ErrorIs(t, members[1].Keep(t.Context()), stores.ErrBatchLost)
	o.requireCounts(1, 1)
}

func TestWhatCanBeShared(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                              "",
		"INSERT INTO t VALUES (?)":      "",
		" -- why\n/* ; */ select ';'; ": "",
		`REPLACE INTO "a;b" VALUES ('it''s;', [;], ` + "`;`)": "",
		"WITH a AS (SELECT 1) UPDATE t SET b = 1":             "",
		"SELECT 1; COMMIT":               "several statements at once",
		"SELECT '1'; -- one\nCOMMIT":     "several statements at once",
		"savepoint a":                    "SAVEPOINT",
		"/* a */ ROLLBACK TO a":          "ROLLBACK",
		"PRAGMA defer_foreign_keys = ON": "PRAGMA",
		"CREATE TEMP TABLE a (b)":        "CREATE",
		"COMMIT":                         "COMMIT",
	} {
		if got := unshared(query); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

// shared is what is seen of an inbox whose handler shares transactions.
type shared struct {
	mu  sync.Mutex
	all []middleware.BatchEnd
}

func (s *shared) BatchEnded(b middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, b)
}

// The messages of a handler share commits, whatever some of them do, and have each its own
// effect, once.
func TestMessagesShareTheFlushOfTheirCommit(t *testing.T) {
	t.Parallel()
	o := open(t)
	seen := &shared{}
	inbox, err := middleware.NewInbox(o.Store, middleware.InboxConfig{
		Service: "billing", Handler: "charge", Hooks: []middleware.Hook{seen},
		BatchByHandler: map[string]middleware.BatchConfig{"charge": {Time: 5 * time.Second, From: 2}},
	})
	require.NoError(t, err)
	const messages = 200
	before := o.commits()
	errOnce := errors.New("it fails")
	handle := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := TxFromContext(msg.Context())
		_, err := tx.Exec("INSERT INTO effects VALUES (?)", msg.UUID)
		if err == nil && msg.UUID[3] == '7' {
			err = errOnce
		}
		return nil, err
	})
	var all sync.WaitGroup
	for i := range messages {
		all.Go(func() {
			_, err := handle(message.NewMessage(fmt.Sprintf("m%03d", i), nil))
			if err != nil && !errors.Is(err, errOnce) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var effects, kept, failed int
	require.NoError(t, o.DB().QueryRow("SELECT count(DISTINCT note) FROM effects").Scan(&effects))
	require.Equal(t, messages*9/10, effects)
	o.requireCounts(messages, effects)
	for _, b := range seen.all {
		require.NoError(t, b.Lost)
		kept += b.Kept
		failed += b.Failed
	}
	commits, alone := o.commits()-before, effects-kept // who came alone ran alone
	t.Logf("%d batches of %d messages, %d commits", len(seen.all), kept, commits)
	require.NotZero(t, failed)
	require.Greater(t, kept, 4*len(seen.all))
	require.Equal(t, 1+len(seen.all)+alone+messages-effects, commits, "one for the consumer, each batch, each message alone and each failure")
}
