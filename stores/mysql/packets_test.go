package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// breaks makes connections that break at one packet.
type breaks struct {
	left atomic.Int64 // packets until then
	sent atomic.Bool  // the packet arrives, and its answer is lost
}

type breaking struct {
	net.Conn
	*breaks
}

func (b *breaks) into(c *driver.Config) {
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &breaking{conn, b}, nil
	}
}

func (c *breaking) Write(packet []byte) (n int, err error) {
	if c.left.Add(-1) != 0 {
		return c.Conn.Write(packet)
	}
	defer c.Close()
	if c.sent.Load() {
		return c.Conn.Write(packet)
	}
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

// Wherever a connection breaks, the effect is there once, the store does not say what is
// not so, and the handler is not to blame.
func TestConnectionsThatBreakAtEachPacket(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		var b breaks
		config := mustParse(t, c.proxy.URL())
		b.into(config)
		s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler), MaxOpenConns: 1})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
		for packet := range 14 { // a connection, its settings, what is prepared, and one message
			for _, sent := range []bool{false, true} {
				id := fmt.Sprintf("packet %d, sent %t", packet, sent)
				for _, fresh := range []bool{true, false} {
					id := fmt.Sprintf("%s, fresh %t", id, fresh)
					if fresh {
						c.proxy.CutAll()
					} else {
						b.handle(t, c, s, id+", before")
					}
					b.sent.Store(sent)
					b.left.Store(int64(packet + 1))
					b.handle(t, c, s, id)
					b.left.Store(0)
				}
			}
		}
	})
}

// handle delivers a message until it is complete.
func (b *breaks) handle(t *testing.T, c counted, s *mysql.Store, id string) {
	t.Helper()
	claim := claimOf(id)
	effects := func() (n int) {
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM effect WHERE label = ?", id).Scan(&n))
		return n
	}
	deadline := time.Now().Add(30 * time.Second)
	for complete := false; !complete; {
		require.True(t, time.Now().Before(deadline), id)
		a, v, err := s.Begin(t.Context(), claim)
		if err != nil {
			require.ErrorIs(t, err, stores.ErrUnavailable, id)
			continue
		}
		if a == nil { // the server has not noticed yet
			require.Equal(t, stores.InFlight, v.Outcome, id)
			continue
		}
		_, failure := txOf(t, a).ExecContext(t.Context(), "INSERT INTO effect VALUES (?)", id)
		if failure != nil {
			_ = a.Rollback(t.Context())
		} else {
			failure = a.Commit(t.Context())
			complete = failure == nil
		}
		if errors.Is(failure, stores.ErrCommitUnknown) {
			require.Eventually(t, func() bool {
				complete, err = s.Resolve(t.Context(), claim.Key)
				return err == nil
			}, 20*time.Second, time.Millisecond, id)
		} else if failure != nil {
			interruptible, _ := a.(stores.Interruptible)
			assert.Error(t, interruptible.Interrupted(), "%s: %v", id, failure)
		}
		require.Equal(t, map[bool]int{true: 1}[complete], effects(), id)
	}
}
