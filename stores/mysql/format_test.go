package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores/mysql"
)

// No verb prints the password of a store, nor of what holds it.
func TestStorePrintsNoPassword(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", "app:hunter-2@tcp(127.0.0.1:1)/db")
	require.NoError(t, err)
	store, err := mysql.New(db, mysql.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close(); _ = db.Close() })
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		require.Equal(t, "a store on MySQL", fmt.Sprintf(verb, store), verb)
		holder := fmt.Sprintf(verb, struct{ Store *mysql.Store }{store})
		require.NotContains(t, holder, "hunter-2", verb)
		require.NotContains(t, holder, fmt.Sprintf("%x", "hunter-2"), verb)
	}
}
