package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

var (
	charge = stores.Consumer{Service: "billing", Handler: "charge"}
	mail   = stores.Consumer{Service: "billing", Handler: "mail"}
)

// onStores runs a test on the store whose turn it is, with migrated tables.
func onStores(t *testing.T, test func(t *testing.T, w *world)) {
	urls := map[string]func(*testing.T) string{
		"sqlite": func(t *testing.T) string {
			return "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "test.db"))
		},
		"postgres": postgresURL,
	}
	for _, name := range rotation.Turn(t, 1, "sqlite", "postgres") {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, urls[name](t))) })
	}
}

// onEveryStore is onStores for what every store can do: one has no purge.
func onEveryStore(t *testing.T, test func(t *testing.T, w *world)) {
	onStores(t, test)
	if rotation.Every(t, 3) {
		t.Run("dynamodb", func(t *testing.T) {
			test(t, newWorld(t, testenv.DynamoDB(t).URL()+"&prefix=t"+uuid.NewString()+"_"))
		})
	}
}

// world is a store that services have used.
type world struct {
	*session
	store stores.Store
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	w := &world{session: newSession(t)}
	w.vars[storeVariable] = url
	w.ok("migrate", "up")
	s, err := stores.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w.store = s
	for _, c := range []stores.Consumer{charge, mail} {
		require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: c, Topic: "orders"}))
	}
	return w
}

// failure is a message that has failed for good, with its content kept.
func failure(c stores.Consumer, id, text string) stores.Failure {
	payload := fmt.Sprintf(`{"order":%q,"big":12345678901234567890}`, id)
	return stores.Failure{
		Key:         stores.Key{Consumer: c, ID: []byte("u:" + id)},
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(payload)),
		Status:      stores.StatusFailed, Placement: stores.PlacementParked, Attempts: 3,
		Class: stores.ClassTransient, Error: text, Cause: stores.CauseOf(stores.ClassTransient, text), Topic: "orders", Coordinates: "orders/0/1",
		Content: &stores.Content{State: stores.ContentKept, UUID: id, Metadata: map[string]string{"type": "order"}, Payload: []byte(payload)},
	}
}

func (w *world) fail(f stores.Failure) {
	w.t.Helper()
	_, err := w.store.Record(w.t.Context(), f)
	require.NoError(w.t, err)
}

// fails records n messages of one cause.
func (w *world) fails(n int, c stores.Consumer, text string) {
	w.t.Helper()
	for i := range n {
		w.fail(failure(c, fmt.Sprintf("%s-%d", text, i), fmt.Sprintf("%s %d", text, i)))
	}
}

// take claims a message that is tried again, as a retry worker does.
func (w *world) take(f stores.Failure) stores.Attempt {
	w.t.Helper()
	v, err := w.store.Look(w.t.Context(), f.Key, f.Fingerprint)
	require.NoError(w.t, err)
	a, verdict, err := w.store.Begin(w.t.Context(), stores.Claim{
		Key: f.Key, Fingerprint: f.Fingerprint, Bound: time.Minute, Take: v.Failure.Version,
	})
	require.NoError(w.t, err)
	require.Equal(w.t, stores.Claimed, verdict.Outcome)
	return a
}

// complete has a message run with success.
func (w *world) complete(f stores.Failure) {
	w.t.Helper()
	a := w.take(f)
	require.NoError(w.t, a.Commit(w.t.Context()))
}

func (w *world) quarantine(id, payload string, change ...func(*stores.Quarantined)) {
	w.t.Helper()
	q := stores.Quarantined{
		Consumer: charge, ID: []byte("u:" + id), Reason: stores.ReasonConflict, Detail: "another message has this id", Topic: "orders",
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(payload)), UUID: id, Payload: []byte(payload),
	}
	for _, f := range change {
		f(&q)
	}
	require.NoError(w.t, w.store.Quarantine(w.t.Context(), q))
}

func postgresURL(t *testing.T) string {
	t.Helper()
	return testenv.Postgres(t).NewDatabase(t)
}
