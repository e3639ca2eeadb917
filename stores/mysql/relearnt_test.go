package mysql_test

import (
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// openBetween is a store whose statements are rewritten, or refused.
func openBetween(t *testing.T, rewrite func(text string) (string, error)) *mysql.Store {
	t.Helper()
	u, err := url.Parse(onMySQL.shared(t).NewDatabase(t))
	require.NoError(t, err)
	u.Host = between(t, u.Host, rewrite)
	s, err := mysql.OpenDB(t.Context(), mustParse(t, u.String()), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	return s
}

// TiDB answers 1105 to a COMMIT of which it does not know what became.
func TestUndeterminedCommitOfAShortTransactionIsAskedForAgain(t *testing.T) {
	t.Parallel()
	var refuses atomic.Bool
	s := openBetween(t, func(text string) (string, error) {
		if text == "COMMIT" && refuses.CompareAndSwap(true, false) {
			return "", &driver.MySQLError{Number: 1105, Message: "execution result undetermined"}
		}
		return text, nil
	})
	failure := stores.Failure{
		Key: claimOf("m").Key, Fingerprint: claimOf("m").Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Class: stores.ClassTransient,
		Error: "why", Cause: "why", Attempts: 1, Content: &stores.Content{State: stores.ContentNone},
	}
	refuses.Store(true)
	_, err := s.Record(t.Context(), failure)
	require.False(t, refuses.Load())
	require.ErrorIs(t, err, stores.ErrUnavailable)
	s.DB().SetMaxIdleConns(0) // the transaction that the proxy left open ends
	_, err = s.Record(t.Context(), failure)
	require.NoError(t, err)
	_, err = s.Record(t.Context(), failure)
	require.ErrorIs(t, err, stores.ErrChanged)
}

// A server that draws numbers otherwise than the one before keeps no order.
func TestOrderIsLearntAgainWithTheServer(t *testing.T) {
	t.Parallel()
	var apart atomic.Bool
	s := openBetween(t, func(text string) (string, error) {
		if apart.Load() {
			text = strings.Replace(text, "@@SESSION.auto_increment_increment", "2", 1)
		}
		return text, nil
	})
	say := func() error {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		keyed := stores.PublisherConfig{OrderKey: func(stores.Output) []byte { return []byte("k") }}
		return mysql.NewPublisher(tx, s, keyed).Publish("orders", message.NewMessage("1", nil))
	}
	require.NoError(t, say())
	apart.Store(true)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing})) // as after a change of servers
	require.True(t, s.Capabilities().OutputsUnordered)
	require.ErrorIs(t, say(), stores.ErrUnordered)
	apart.Store(false)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	require.NoError(t, say())
}
