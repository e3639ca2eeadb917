package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/stores"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role))
	}
	goleak.VerifyTestMain(m)
}

var billing = stores.Consumer{Service: "billing", Handler: "charge"}

// opened is a store with one consumer and a table for effects, without any constraint
// that would hide a doubled one.
type opened struct {
	*Store
	t *testing.T
}

func open(t *testing.T, configure ...func(*Config)) opened {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "test.db"), configure...)
}

func openAt(t *testing.T, path string, configure ...func(*Config)) opened {
	t.Helper()
	// The disk's patience is not what is tested here.
	c := Config{AutoMigrate: true, Synchronous: Normal}
	for _, f := range configure {
		f(&c)
	}
	s, err := New(t.Context(), path, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing, Topic: "orders"}))
	_, err = s.DB().Exec("CREATE TABLE IF NOT EXISTS effects (note TEXT)")
	require.NoError(t, err)
	return opened{s, t}
}

func claimOf(id string) stores.Claim {
	return stores.Claim{Key: stores.Key{Consumer: billing, ID: []byte(id)}, Fingerprint: fingerprintOf(id)}
}

func fingerprintOf(payload string) stores.Fingerprint {
	return stores.NewFingerprint(stores.FingerprintKey{}, []byte(payload))
}

// begin wins a claim.
func (o opened) begin(c stores.Claim) stores.Attempt {
	o.t.Helper()
	a, verdict, err := o.Begin(o.t.Context(), c)
	require.NoError(o.t, err)
	require.Equal(o.t, stores.Claimed, verdict.Outcome)
	return a
}

// verdict is what a claim that is not won finds.
func (o opened) verdict(c stores.Claim) stores.Verdict {
	o.t.Helper()
	a, verdict, err := o.Begin(o.t.Context(), c)
	require.NoError(o.t, err)
	require.Nil(o.t, a)
	return verdict
}

// answer is the verdict about a key that cannot be claimed, by a look or by a claim.
func (o opened) answer(c stores.Claim, look bool) stores.Verdict {
	o.t.Helper()
	if !look {
		return o.verdict(c)
	}
	verdict, err := o.Look(o.t.Context(), c.Key, c.Fingerprint)
	require.NoError(o.t, err)
	return verdict
}

// complete processes a message with one effect.
func (o opened) complete(c stores.Claim) {
	o.t.Helper()
	a := o.begin(c)
	o.effect(a, "done")
	require.NoError(o.t, a.Commit(o.t.Context()))
}

func (o opened) effect(a stores.Attempt, note string) {
	o.t.Helper()
	tx, ok := TxFromContext(a.Context(o.t.Context()))
	require.True(o.t, ok)
	_, err := tx.Exec("INSERT INTO effects VALUES (?)", note)
	require.NoError(o.t, err)
}

// counts returns the inbox rows and the effects that are committed, as another
// connection sees them.
func (o opened) counts() (rows, effects int) {
	o.t.Helper()
	require.NoError(o.t, o.DB().QueryRow("SELECT count(*) FROM "+o.dialect.Names.Table("inbox")).Scan(&rows))
	require.NoError(o.t, o.DB().QueryRow("SELECT count(*) FROM effects").Scan(&effects))
	return rows, effects
}

func (o opened) requireCounts(rows, effects int) {
	o.t.Helper()
	r, e := o.counts()
	require.Equal(o.t, rows, r, "inbox rows")
	require.Equal(o.t, effects, e, "effects")
}

func txOf(t *testing.T, a stores.Attempt) *sql.Tx {
	t.Helper()
	tx, ok := TxFromContext(a.Context(t.Context()))
	require.True(t, ok)
	return tx
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
