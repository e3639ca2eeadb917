package sqlite

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/leasetest"
)

// There are no trips here: each commit is a wait for the disk.
func TestLeaseCosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	o := openAt(t, path)
	got := leasetest.Measure(t, leasetest.Store{
		Store: o.Store, Consumer: billing,
		Write: func(ctx context.Context) error {
			tx, _ := TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('done')")
			return err
		},
		Cost: func(f func()) leasetest.Cost {
			before := commitsIn(t, path)
			f()
			return leasetest.Cost{Commits: commitsIn(t, path) - before}
		},
	})
	one := leasetest.Cost{Commits: 1}
	require.Equal(t, leasetest.Costs{First: leasetest.Cost{Trips: -1, Commits: 2}, Renewal: one, Step: one}, got)
}

// commitsIn counts the commits in the log of a database, which is not started anew meanwhile:
// the last page of each says how large the database is.
func commitsIn(t *testing.T, path string) (n int) {
	t.Helper()
	const head, frameHead = 32, 24
	log, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	if len(log) < head {
		return 0
	}
	page, salt := int(binary.BigEndian.Uint32(log[8:])), log[16:24]
	for at := head; at+frameHead <= len(log) && string(log[at+8:at+16]) == string(salt); at += frameHead + page {
		if binary.BigEndian.Uint32(log[at+4:]) != 0 {
			n++
		}
	}
	return n
}
