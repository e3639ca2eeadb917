package postgres_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores"
)

// The query of docs/operations.md finds a completed message, and no other that has a row.
func TestDocumentedQueryFindsCompletedMessagesAlone(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	query := regexp.MustCompile("(?s)## Was this message handled\\?.*?```sql\n(.*?);\n```").FindStringSubmatch(string(page))
	require.NotNil(t, query)
	statement := strings.NewReplacer("'billing'", "'"+pgtest.Stock.Service+"'", "'mark-paid'", "'"+pgtest.Stock.Handler+"'").Replace(query[1])
	literal := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).FindString(statement)
	id := uuid.MustParse(literal)

	s := newStore(t)
	a, _ := begin(t, s, stores.Claim{Key: stores.Key{Consumer: pgtest.Stock, ID: append([]byte("u#"), id[:]...)}})
	require.NoError(t, a.Commit(t.Context()))
	for status, want := range map[int]int64{2: 1, 3: 0, 4: 0, 5: 0} {
		_, err := s.Pool().Exec(t.Context(), "UPDATE millpond_inbox SET status = $1", status)
		require.NoError(t, err)
		found, err := s.Pool().Exec(t.Context(), statement)
		require.NoError(t, err)
		require.Equal(t, want, found.RowsAffected(), "status %d", status)
	}
}
