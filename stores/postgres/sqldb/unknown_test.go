package sqldb_test

import (
	"errors"
	"testing"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// Whoever loses the connection in COMMIT does not know, and is told when it asks again.
func TestCommitOfWhichNothingIsHeardIsUnknown(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		s := newStore(t, e, proxy.URL())
		for name, test := range map[string]struct {
			lose      func(int)
			committed bool
		}{
			"the reply":   {proxy.LoseCommitReply, true},
			"the request": {proxy.LoseCommitRequest, false},
		} {
			a, tx := begin(t, s, pgtest.Claim(name))
			if err := insert(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			test.lose(1)
			if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
				t.Errorf("%s: %v", name, err)
			}
			committed, err := s.Resolve(t.Context(), pgtest.Claim(name).Key)
			if err != nil || committed != test.committed {
				t.Errorf("%s: %v, %v", name, committed, err)
			}
		}
		if n := effects(t, s); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}
