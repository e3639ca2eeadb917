package sqlite

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func TestQuarantineKeepsEverything(t *testing.T) {
	o := open(t)
	q := stores.Quarantined{
		Consumer: billing, ID: []byte("\x00\xff" + strings.Repeat("x", 10<<10)), Reason: stores.ReasonConflict,
		Detail:      strings.Repeat("ä", stores.MaxDetailBytes),
		Fingerprint: fingerprintOf("b"), Existing: fingerprintOf("a"),
		Topic: "or\x00ders", Coordinates: "0/\xff", UUID: "u\x00\xff",
		Metadata: map[string]string{"a": "1", "b\xff": "\x00"}, Payload: []byte("\x00payload\xff"),
	}
	before := time.Now().Add(-time.Millisecond)
	require.NoError(t, o.Quarantine(t.Context(), q))
	var (
		id, fingerprint, existing, uuid, metadata, payload []byte
		reason, detail, topic, coordinates                 string
		seen                                               int
		first, last                                        int64
	)
	require.NoError(t, o.DB().QueryRow(`SELECT message_id, fingerprint, existing, uuid, metadata, payload, reason, detail, topic, coordinates,
		seen, first_at, last_at FROM millpond_quarantine`).Scan(&id, &fingerprint, &existing, &uuid, &metadata, &payload, &reason, &detail, &topic,
		&coordinates, &seen, &first, &last))
	require.Equal(t, q.ID, id)
	require.Equal(t, q.Fingerprint.Bytes(), fingerprint)
	require.Equal(t, q.Existing.Bytes(), existing)
	require.Equal(t, q.UUID, string(uuid))
	decoded, err := sqlstore.DecodeMetadata(metadata)
	require.NoError(t, err)
	require.Equal(t, q.Metadata, decoded)
	require.Equal(t, q.Payload, payload)
	require.Equal(t, []string{"conflict", q.Detail[:stores.MaxDetailBytes], "or\uFFFDders", "0/\uFFFD"}, []string{reason, detail, topic, coordinates})
	require.Equal(t, 1, seen)
	require.Equal(t, first, last)
	require.WithinRange(t, time.UnixMicro(first), before, time.Now().Add(time.Millisecond))
}

func TestQuarantineMerges(t *testing.T) {
	o := open(t)
	base := stores.Quarantined{Consumer: billing, ID: []byte("a"), Reason: stores.ReasonConflict, Fingerprint: fingerprintOf("1"), Payload: []byte("1")}
	rows := func() (rows, seen int) {
		require.NoError(t, o.DB().QueryRow("SELECT count(*), coalesce(sum(seen), 0) FROM millpond_quarantine").Scan(&rows, &seen))
		return rows, seen
	}
	want := 0
	put := func(q stores.Quarantined, isNew bool) {
		t.Helper()
		before, seen := rows()
		require.NoError(t, o.Quarantine(t.Context(), q))
		if isNew {
			want++
		}
		after, seenAfter := rows()
		require.Equal(t, want, after)
		require.Equal(t, seen+1, seenAfter)
		require.Equal(t, isNew, after > before)
	}
	put(base, true)
	put(base, false)
	again := base
	again.Payload, again.Topic, again.Detail = []byte("another"), "elsewhere", "other"
	put(again, false) // the id and the fingerprint say that it is the same
	other := base
	other.ID = []byte("A")
	put(other, true)
	other = base
	other.Fingerprint = fingerprintOf("2")
	put(other, true)
	other = base
	other.Fingerprint = stores.Fingerprint{}
	put(other, true)
	put(other, false)
	other = base
	other.Reason = stores.ReasonTooLarge
	put(other, true)

	// Without an id only what differs in nothing is the same.
	none := stores.Quarantined{Consumer: billing, Reason: stores.ReasonNoKey, Topic: "t", UUID: "u", Payload: []byte("p"), Metadata: map[string]string{"k": "v"}}
	put(none, true)
	put(none, false)
	for _, change := range []func(*stores.Quarantined){
		func(q *stores.Quarantined) { q.Payload = nil },
		func(q *stores.Quarantined) { q.Topic = "t2" },
		func(q *stores.Quarantined) { q.UUID = "" },
		func(q *stores.Quarantined) { q.Coordinates = "0/1" },
		func(q *stores.Quarantined) { q.Metadata = nil },
	} {
		q := none
		change(&q)
		put(q, true)
	}
	var payload []byte
	require.NoError(t, o.DB().QueryRow("SELECT payload FROM millpond_quarantine ORDER BY id LIMIT 1").Scan(&payload))
	require.Equal(t, "1", string(payload), "the first stays")
}

func TestQuarantineAtOnce(t *testing.T) {
	o := open(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if err := o.Quarantine(t.Context(), stores.Quarantined{Consumer: billing, ID: []byte("a"), Reason: stores.ReasonConflict}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var rows, seen int
	require.NoError(t, o.DB().QueryRow("SELECT count(*), sum(seen) FROM millpond_quarantine").Scan(&rows, &seen))
	require.Equal(t, []int{1, 32}, []int{rows, seen})
}

func TestQuarantineTooLarge(t *testing.T) {
	o := open(t)
	o.maxRow = 1000
	q := stores.Quarantined{Consumer: billing, Reason: stores.ReasonTooLarge, Payload: make([]byte, 1001)}
	require.ErrorIs(t, o.Quarantine(t.Context(), q), stores.ErrTooLarge)
	q.Payload, q.Metadata = nil, map[string]string{"\xff": strings.Repeat("\xff", 900)}
	require.ErrorIs(t, o.Quarantine(t.Context(), q), stores.ErrTooLarge, "metadata counts as it is stored")
	q.Metadata = nil
	require.NoError(t, o.Quarantine(t.Context(), q))
	var rows int
	require.NoError(t, o.DB().QueryRow("SELECT count(*) FROM millpond_quarantine").Scan(&rows))
	require.Equal(t, 1, rows)
}

func TestQuarantineLargePayload(t *testing.T) {
	o := open(t)
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	q := stores.Quarantined{Consumer: billing, Reason: stores.ReasonTooLarge, Payload: payload}
	require.NoError(t, o.Quarantine(t.Context(), q))
	require.NoError(t, o.Quarantine(t.Context(), q))
	var stored []byte
	require.NoError(t, o.DB().QueryRow("SELECT payload FROM millpond_quarantine").Scan(&stored))
	require.True(t, bytes.Equal(payload, stored))
}

func TestQuarantineNeedsAConsumer(t *testing.T) {
	o := open(t)
	err := o.Quarantine(t.Context(), stores.Quarantined{Consumer: stores.Consumer{Service: "x", Handler: "y"}, Reason: stores.ReasonNoKey})
	require.ErrorIs(t, err, stores.ErrNotRegistered)
	err = o.Quarantine(t.Context(), stores.Quarantined{Reason: stores.ReasonNoKey})
	require.ErrorIs(t, err, stores.ErrInvalidKey)
}
