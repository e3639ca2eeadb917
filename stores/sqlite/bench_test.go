package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/millpond-go/millpond/stores"
)

// The same write with an inbox around it and without, and duplicates.
func BenchmarkStore(b *testing.B) {
	for _, mode := range []struct {
		name        string
		synchronous Synchronous
	}{{"full", Full}, {"normal", Normal}} {
		for _, workers := range []int{1, 16} {
			name := fmt.Sprintf("%s/workers=%d", mode.name, workers)
			b.Run("alone/"+name, func(b *testing.B) {
				s := benchStore(b, mode.synchronous)
				s.program.SetMaxOpenConns(1)
				parallel(b, workers, func(int64) error {
					tx, err := s.program.BeginTx(b.Context(), nil)
					if err != nil {
						return err
					}
					if err := benchEffect(tx); err != nil {
						return err
					}
					return tx.Commit()
				})
			})
			b.Run("inbox/"+name, func(b *testing.B) {
				s := benchStore(b, mode.synchronous)
				parallel(b, workers, func(n int64) error {
					a, _, err := s.Begin(b.Context(), claimOf(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", n)))
					if err != nil {
						return err
					}
					if err := benchEffect(a.(*attempt).tx); err != nil {
						return err
					}
					return a.Commit(b.Context())
				})
			})
		}
	}
	for _, look := range []bool{false, true} {
		for _, workers := range []int{1, 16} {
			b.Run(fmt.Sprintf("duplicate/look=%v/workers=%d", look, workers), func(b *testing.B) {
				s := benchStore(b, Normal)
				const keys = 1000 // more than workers, so that hardly one is in flight
				claims := make([]stores.Claim, keys)
				for i := range claims {
					claims[i] = claimOf(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i))
					a, _, err := s.Begin(b.Context(), claims[i])
					if err == nil {
						err = a.Commit(b.Context())
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				parallel(b, workers, func(n int64) error {
					c := claims[n%keys]
					if look {
						_, err := s.Look(b.Context(), c.Key, c.Fingerprint)
						return err
					}
					_, _, err := s.Begin(b.Context(), c)
					return err
				})
			})
		}
	}
}

func benchStore(b *testing.B, synchronous Synchronous) *Store {
	b.Helper()
	s, err := New(b.Context(), filepath.Join(b.TempDir(), "bench.db"), Config{AutoMigrate: true, Synchronous: synchronous})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	if err := s.Register(b.Context(), stores.Registration{Consumer: billing}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.DB().Exec("CREATE TABLE effects (note TEXT)"); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchEffect(tx *sql.Tx) error {
	_, err := tx.Exec("INSERT INTO effects VALUES ('done')")
	return err
}

func parallel(b *testing.B, workers int, f func(n int64) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(max(1, workers/4))
	var n atomic.Int64
	b.ResetTimer()
	if workers == 1 {
		for b.Loop() {
			if err := f(n.Add(1)); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(n.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
