package mysql_test

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// All batches lock their keys in one order, also if some of them are taken.
func TestClaimsOfABatchAreSortedByKey(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		var (
			mu    sync.Mutex
			texts []string
			ids   = []string{"first key", "second key", "third key", "zeroth"}
		)
		config := mustParse(t, p.shared(t).NewDatabase(t))
		config.Addr = between(t, config.Addr, func(text string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			texts = append(texts, text)
			return text, nil
		})
		s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
		require.NoError(t, begin(t, s, claimOf(ids[1])).Commit(t.Context()))
		for _, unsorted := range [][]string{{ids[3], ids[2], ids[0]}, {ids[2], ids[1], ids[0], ids[3]}} {
			mu.Lock()
			texts = nil
			mu.Unlock()
			b, _ := beginBatch(t, s, unsorted...)
			require.NoError(t, b.Rollback(context.WithoutCancel(t.Context())))
			mu.Lock()
			requireSorted(t, texts, ids, len(unsorted))
			mu.Unlock()
		}
	})
}

// requireSorted looks for the ids in each text that has any.
func requireSorted(t *testing.T, texts, sorted []string, n int) {
	t.Helper()
	seen := 0
	for _, text := range texts {
		var found int
		last := -1
		for _, id := range sorted {
			at := strings.Index(text, hex.EncodeToString([]byte(id)))
			if at < 0 {
				continue
			}
			require.Greater(t, at, last, "%q in %s", id, text)
			last = at
			found++
		}
		if found > 0 {
			require.Equal(t, n, found, text)
			seen++
		}
	}
	require.Positive(t, seen, "no statement has made the claims")
}
