package storetest

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// batchStale lets messages that a purge may have removed be members beside others.
func (b *bench) batchStale(store stores.Store, batcher stores.Batcher) {
	purger, ok := store.(stores.Purger)
	if !ok {
		b.tb.Fatalf("a %T is no stores.Purger", store)
	}
	took := b.now(purger)
	b.forget(purger, consumer)
	mark, _ := b.watermark(purger, consumer)
	through := mark.PurgedThrough
	var (
		claims []stores.Claim
		stale  []bool
	)
	for _, m := range []struct {
		id    string
		time  time.Time
		stale bool
	}{
		{"old", took, true},
		{"recent", through.Add(time.Hour), false},
		{"of no time", time.Time{}, false},
		{"just not too old", through, false},
		{"just too old", through.Add(-time.Millisecond), true},
	} {
		c := claimFor(m.id, "p")
		c.Time = m.time
		claims, stale = append(claims, c), append(stale, m.stale && !store.Capabilities().StaleUnseen)
	}
	batch, members := b.beginClaims(batcher, claims...)
	for i, c := range claims {
		id := string(c.Key.ID)
		if stale[i] != (members[i] == nil) {
			b.tb.Fatalf("%s: won is %t, want %t", id, members[i] != nil, !stale[i])
		}
		if !stale[i] {
			b.handled(members[i], id)
			b.kept(members[i])
		}
	}
	if err := batch.Commit(b.ctx); err != nil {
		b.tb.Fatalf("Commit: %v", err)
	}
	for i, c := range claims {
		want := stores.Duplicate
		if stale[i] {
			want = stores.Stale
		}
		b.expect(store, c, want)
		if b.completed(c.Key) == stale[i] {
			b.tb.Errorf("%s: completed is %t", c.Key, stale[i])
		}
	}
}

// batchRows completes the same messages alone and as members: that leaves the same rows. Stores
// may make claims that are not all won in another way, so there is a batch of either kind.
func (b *bench) batchRows(store stores.Store, batcher stores.Batcher) {
	claims := batchClaims()
	completeAlone := func(all []stores.Claim) {
		for _, c := range all {
			b.commit(b.win(store, c))
		}
	}
	completeAlone(claims)
	alone := b.completedRows(store, claims)
	for unwon := range 2 {
		b.clear()
		completeAlone(claims[:unwon])
		batch, members := b.beginClaims(batcher, claims...)
		for i, m := range members {
			switch {
			case (m == nil) != (i < unwon):
				b.tb.Fatalf("%s: won is %t", claims[i].Key, m != nil)
			case m != nil:
				b.kept(m)
			}
		}
		if err := batch.Commit(b.ctx); err != nil {
			b.tb.Fatalf("Commit: %v", err)
		}
		rows := b.completedRows(store, claims)
		if len(rows) != len(alone) {
			b.tb.Fatalf("%d rows, want %d", len(rows), len(alone))
		}
		for i := range rows {
			if rows[i] != alone[i] {
				b.tb.Errorf("with %d claims that are not won, a batch leaves the row\n\t%s\nwant\n\t%s", unwon, rows[i], alone[i])
			}
		}
	}
}

// batchClaims differ in all that a row keeps. Neither their ids nor anything else is sorted.
func batchClaims() []stores.Claim {
	key := stores.NewFingerprintKey(1, []byte("secret"))
	claims := []stores.Claim{
		claimFor("d", "of d"), claimFor("b", "of b"), claimFor(strings.Repeat("long", stores.MaxIDBytes/4), "of the longest"),
		claimFor("a", "none"), claimFor("\x00'\\\xff", "of bytes"), claimFor("ba", "of ba"), claimFor("c", "keyed"),
	}
	claims[3].Fingerprint = stores.Fingerprint{}
	claims[6].Fingerprint = stores.NewFingerprint(key, []byte("keyed"))
	for i := range claims {
		if i != 1 { // which has none
			claims[i].TraceParent = stores.TraceParent{0: 9 - byte(i), 20: byte(i), 24: 1}
		}
		if i%3 == 2 { // some have one
			claims[i].Time = time.Now()
		}
	}
	return claims
}

// ofTheClaim are the columns in which two claims of one message differ.
var ofTheClaim = regexp.MustCompile(`(completed_at=[-+.: 0-9A-Z]*|token=\S*)`)

// completedRows checks that all are completed, each with what its own claim said, and returns their rows.
func (b *bench) completedRows(store stores.Store, claims []stores.Claim) []string {
	b.tb.Helper()
	const skew = time.Hour // of the database's clock
	for _, c := range claims {
		v := b.look(store, c, stores.Duplicate)
		if v.TraceParent != c.TraceParent || v.Fingerprint != c.Fingerprint {
			b.tb.Errorf("%s: it has the trace parent %q and the fingerprint %x, want those of its claim, %q and %x",
				c.Key, v.TraceParent, v.Fingerprint.Bytes(), c.TraceParent, c.Fingerprint.Bytes())
		}
		if age := time.Since(v.CompletedAt); age < -skew || age > skew {
			b.tb.Errorf("%s: CompletedAt is %s, want about now", c.Key, v.CompletedAt)
		}
		if digest := slices.Clone(c.Fingerprint.Bytes()); len(digest) > 0 {
			digest[len(digest)-1]++
			another := c
			another.Fingerprint, _ = stores.ParseFingerprint(digest)
			b.look(store, another, stores.Conflict)
		}
	}
	rows := b.dump("millpond_inbox")
	for i := range rows {
		rows[i] = ofTheClaim.ReplaceAllString(rows[i], "")
	}
	slices.Sort(rows)
	return rows
}
