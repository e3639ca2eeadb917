package postgres_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A server that does not keep what it has committed is warned of, by name and value.
func TestMissingDurabilityIsWarnedOf(t *testing.T) {
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
	}))
	store, err := postgres.Open(t.Context(), server.NewDatabase(t))
	require.NoError(t, err)
	defer store.Close()
	var log bytes.Buffer
	store.SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, store.Register(t.Context(), stores.Registration{
			Consumer: stores.Consumer{Service: "shop", Handler: "stock"}, Topic: "orders",
		}))
	}
	for _, says := range []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"} {
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte(says)), "%s in %s", says, log.String())
	}
}
