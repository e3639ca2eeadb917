package sqlite

import (
	"context"
	"database/sql"
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
	require.Eventually(t, func() bool {
		if b.(*batch).conn.mu.TryLock() {
			b.(*batch).conn.mu.Unlock()
			return false
		}
		return true
	}, 10*time.Second, time.Millisecond)
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
	var effects, failed int
	require.NoError(t, o.DB().QueryRow("SELECT count(DISTINCT note) FROM effects").Scan(&effects))
	require.Equal(t, messages*9/10, effects)
	o.requireCounts(messages, effects)
	for _, b := range seen.all {
		require.NoError(t, b.Lost)
		failed += b.Failed
	}
	t.Logf("%d batches, %d commits", len(seen.all), o.commits()-before)
	require.NotZero(t, failed)
	require.Less(t, o.commits()-before, messages/4+failed*2, "beside the batches' there are those of failures")
}
