package sqldb_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// No verb prints the password of a store, nor of what holds it.
func TestStorePrintsNoPassword(t *testing.T) {
	db, err := sqldb.OpenDB("postgres://app:hunter-2@127.0.0.1:1/db")
	require.NoError(t, err)
	store, err := sqldb.New(db, sqldb.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close(); _ = db.Close() })
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		text := fmt.Sprintf(verb, store)
		require.NotContains(t, text, "hunter-2", verb)
		require.NotContains(t, text, fmt.Sprintf("%x", "hunter-2"), verb)
	}
}
