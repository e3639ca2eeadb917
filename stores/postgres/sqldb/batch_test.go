package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func beginBatch(t *testing.T, s *sqldb.Store, ids ...string) stores.Batch {
	t.Helper()
	claims := make([]stores.Claim, len(ids))
	for i, id := range ids {
		claims[i] = pgtest.Claim(id)
	}
	b, err := s.BeginBatch(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Rollback(context.WithoutCancel(t.Context())) })
	return b
}

func memberTx(t *testing.T, m stores.Member) *sql.Tx {
	t.Helper()
	tx, ok := sqldb.TxFromContext(m.Context(t.Context()))
	if !ok {
		t.Fatal("the member has no transaction")
	}
	return tx
}

func TestWhatABatchCosts(t *testing.T) {
	t.Parallel()
	const k = 10
	proxy, s := throughProxy(t, connector)
	errFailed := errors.New("failed")
	read := func(tx *sql.Tx) error {
		return tx.QueryRowContext(t.Context(), "SELECT count(*) FROM effect WHERE key = $1", "none").Scan(new(int))
	}
	for name, test := range map[string]struct {
		trips  int
		handle func(tx *sql.Tx, i int) error
	}{
		"one statement": {2 + k, func(tx *sql.Tx, _ int) error { return insert(t.Context(), tx) }},
		"none":          {2, func(*sql.Tx, int) error { return nil }},
		"a query first": {2 + 3*k, func(tx *sql.Tx, _ int) error { return errors.Join(read(tx), insert(t.Context(), tx)) }},
		"one statement, 2 fail": {2 + k + 2, func(tx *sql.Tx, i int) error {
			return errors.Join(insert(t.Context(), tx), map[int]error{3: errFailed, 8: errFailed}[i])
		}},
	} {
		cost := pgtest.WarmedUp(t, proxy, func() {
			keys := make([]string, k)
			for i := range keys {
				keys[i] = uuid.NewString()
			}
			b := beginBatch(t, s, keys...)
			for i, m := range b.Members() {
				var err error
				if test.handle(memberTx(t, m), i) != nil {
					err = m.Leave(t.Context())
				} else {
					err = m.Keep(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
			if err := b.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if cost.RoundTrips != test.trips || cost.Commits != 1 {
			t.Errorf("%s: %+v, want %d trips", name, cost, test.trips)
		}
	}
}

// Each member has a *sql.Tx of its own, which ends with its run.
func TestAMemberEndsNothingButItsOwnRun(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	b := beginBatch(t, s, "kept", "ends", "after")
	members := b.Members()
	first := memberTx(t, members[0])
	left, err := first.PrepareContext(t.Context(), insertEffect) //nolint:sqlclosecheck // left behind on purpose
	if err == nil {
		_, err = left.ExecContext(t.Context(), "kept")
	}
	if err = errors.Join(err, members[0].Keep(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := left.ExecContext(t.Context(), "late"); err == nil {
		t.Error("a statement that was left behind is run")
	}
	second := memberTx(t, members[1])
	if err := insert(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); !errors.Is(err, stores.ErrTxManaged) {
		t.Error(err)
	}
	if err := members[1].Keep(t.Context()); !errors.Is(err, stores.ErrTxManaged) || errors.Is(err, stores.ErrBatchLost) {
		t.Error(err)
	}
	if err := errors.Join(insert(t.Context(), memberTx(t, members[2])), members[2].Keep(t.Context()), b.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	var effects, rows int
	err = s.DB().QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM millpond_inbox)").Scan(&effects, &rows)
	if err != nil || effects != 2 || rows != 2 {
		t.Errorf("%d effects, %d rows, %v", effects, rows, err)
	}
}

// On the program's own connections nothing rides, so nothing is shared.
// Goroutines that handlers left behind close what they prepared while other members have the
// connection, and while it is given back.
func TestLateClosesDoNotDisturbTheNextMembers(t *testing.T) {
	t.Parallel()
	s := newStore(t, entry{open: sqldb.OpenDB}, testenv.VolatilePostgres(t).NewDatabase(t))
	for _, early := range []bool{true, false} {
		b := beginBatch(t, s, fmt.Sprint("leaves", early), fmt.Sprint("leaves, too", early), fmt.Sprint("last", early))
		var late sync.WaitGroup
		begin := make(chan struct{})
		for i, m := range b.Members() {
			for range 50 {
				prepared, err := memberTx(t, m).PrepareContext(t.Context(), "SELECT 1")
				if err != nil {
					t.Fatal(err)
				}
				late.Go(func() {
					<-begin
					_ = prepared.Close()
				})
			}
			if err := m.Keep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i == 0 && early {
				close(begin)
			}
		}
		if !early {
			close(begin)
		}
		if err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		late.Wait()
	}
}

func TestOthersConnectionsHaveNoBatches(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{callersPG, callersPQ} {
		if n := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t)).BatchLimit(1); n != 0 {
			t.Errorf("%s: %d", e.name, n)
		}
	}
}
