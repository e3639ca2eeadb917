package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestResolve(t *testing.T) {
	o := open(t)
	o.complete(claimOf("a"))
	completed, err := o.Resolve(t.Context(), claimOf("a").Key)
	require.NoError(t, err)
	require.True(t, completed)
	for range 2 {
		completed, err = o.Resolve(t.Context(), claimOf("b").Key)
		require.NoError(t, err)
		require.False(t, completed)
	}
	require.NoError(t, o.Validate(t.Context()), "the version is what it was")
	_, err = o.Resolve(t.Context(), stores.Key{Consumer: billing})
	require.ErrorIs(t, err, stores.ErrInvalidKey)

	// A consumer that this process has not registered can be asked for.
	other := claimOf("a").Key
	other.Consumer.Handler = "other"
	completed, err = o.Resolve(t.Context(), other)
	require.NoError(t, err)
	require.False(t, completed)
}

// Resolve waits for whoever could still complete the key.
func TestResolveWaits(t *testing.T) {
	o := open(t)
	elsewhere := openAt(t, o.path)
	for _, holder := range []opened{o, elsewhere} {
		a := holder.begin(claimOf("a"))
		_, err := o.Resolve(within(t, 50*time.Millisecond), claimOf("a").Key)
		require.ErrorIs(t, err, stores.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		answer := make(chan bool)
		go func() {
			completed, err := o.Resolve(t.Context(), claimOf("a").Key)
			answer <- completed && err == nil
		}()
		select {
		case <-answer:
			t.Fatal("answered while the transaction runs")
		case <-time.After(50 * time.Millisecond):
		}
		if holder == elsewhere {
			require.NoError(t, a.Commit(t.Context()))
			require.True(t, <-answer)
			continue
		}
		require.NoError(t, a.Rollback(t.Context()))
		require.False(t, <-answer)
	}
}

// A commit whose fsync failed leaves a complete transaction in the log that nobody sees,
// until a crash and a recovery. Once Resolve has said that the key is absent that must
// not happen any more.
func TestResolveIsFinal(t *testing.T) {
	o := open(t)
	o.complete(claimOf("kept"))
	// The log's index as it was before the second transaction is what SQLite goes back
	// to when a commit fails.
	index, err := os.ReadFile(o.path + "-shm")
	require.NoError(t, err)
	o.complete(claimOf("lost"))
	f, err := os.OpenFile(o.path+"-shm", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(index, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	o.requireCounts(1, 1)
	afterACrash(o).requireCounts(2, 2)

	completed, err := o.Resolve(t.Context(), claimOf("lost").Key)
	require.NoError(t, err)
	require.False(t, completed)
	afterACrash(o).requireCounts(1, 1)
	o.complete(claimOf("lost"))
	o.requireCounts(2, 2)
}

// afterACrash opens the file and the log as a machine would find them.
func afterACrash(o opened) opened {
	o.t.Helper()
	path := filepath.Join(o.t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(o.path + suffix)
		require.NoError(o.t, err)
		require.NoError(o.t, os.WriteFile(path+suffix, b, 0o600))
	}
	return openAt(o.t, path)
}
