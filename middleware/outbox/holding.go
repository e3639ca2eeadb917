package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Names of leases: for the buckets, and for the relays themselves, which counts them.
const (
	bucketLeases = "outbox"
	relayLeases  = "outbox relay"
)

// holding has the leases of a relay. A new relay takes free buckets only; a relay with more than
// its share gives some up.
type holding struct {
	store stores.Leases
	ttl   time.Duration
	owner string
	self  int64 // the number that stands for the relay

	mu      sync.Mutex
	terms   map[int64]int64 // by bucket; a term grows when the bucket is gained again
	term    int64
	expires time.Time // by this process's clock, counted from before the renewal was sent
	leaving map[int64]bool
	live    int // the number of relays at the last renewal
}

func newHolding(store stores.Leases, ttl time.Duration) *holding {
	host, _ := os.Hostname()
	self := rand.Int64() //nolint:gosec // it distinguishes relays and is no secret
	return &holding{
		store: store, ttl: ttl, owner: fmt.Sprintf("%.100s/%d/%x", host, os.Getpid(), self), self: self,
		terms: make(map[int64]int64), leaving: make(map[int64]bool),
	}
}

// renew renews the leases. Surplus buckets are given back once busy says that nothing of them is
// being published. change enters the new state.
func (h *holding) renew(ctx context.Context, busy func(bucket int64) bool, change func(func() (gained bool))) error {
	asked := time.Now()
	relays, err := h.store.Lease(ctx, stores.LeaseRequest{Name: relayLeases, Owner: h.owner, Units: []int64{h.self}, Limit: 1, TTL: h.ttl})
	if err != nil {
		return err
	}
	share := (stores.OutboxBuckets + relays.Live - 1) / max(relays.Live, 1)
	if surplus := h.giveUp(share, busy); len(surplus) > 0 {
		if err := h.store.Unlease(ctx, bucketLeases, h.owner, surplus); err != nil {
			return err
		}
	}
	units := make([]int64, stores.OutboxBuckets)
	for i := range units { // in one order, so that relays that begin at once do not deadlock
		units[i] = int64(i)
	}
	leased, err := h.store.Lease(ctx, stores.LeaseRequest{Name: bucketLeases, Owner: h.owner, Units: units, Limit: share, TTL: h.ttl})
	if err != nil {
		return err
	}
	change(func() bool { return h.have(leased.Units, relays.Live, asked) })
	return nil
}

// giveUp stops publishing from the buckets above the share, and returns those that can be given
// back; the relay no longer has them.
func (h *holding) giveUp(share int, busy func(bucket int64) bool) (surplus []int64) {
	h.mu.Lock()
	for bucket := range h.terms {
		if len(h.terms)-len(h.leaving) <= share {
			break
		}
		h.leaving[bucket] = true
	}
	var leaving []int64
	for bucket := range h.leaving {
		leaving = append(leaving, bucket)
	}
	h.mu.Unlock()
	for _, bucket := range leaving {
		if !busy(bucket) {
			surplus = append(surplus, bucket)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, bucket := range surplus {
		delete(h.terms, bucket)
		delete(h.leaving, bucket)
	}
	return surplus
}

func (h *holding) have(units []int64, live int, asked time.Time) (gained bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !time.Now().Before(h.expires) { // another relay may have had them meanwhile
		clear(h.terms)
	}
	was := h.terms
	h.terms, h.live = make(map[int64]int64, len(units)), live
	h.term++
	for _, bucket := range units {
		term, had := was[bucket]
		if !had {
			term, gained = h.term, true
		}
		h.terms[bucket] = term
	}
	h.expires = asked.Add(h.ttl)
	return gained
}

// known reports whether the relay knows its buckets, even if it has none.
func (h *holding) known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.expires)
}

// shared reports whether there are other relays.
func (h *holding) shared() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live > 1
}

// buckets returns the buckets from which publishing may begin.
func (h *holding) buckets() (buckets []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !time.Now().Before(h.expires) {
		return nil
	}
	for bucket := range h.terms {
		if !h.leaving[bucket] {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// termOf returns the term of a bucket from which publishing may begin, else 0.
func (h *holding) termOf(bucket int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaving[bucket] {
		return 0
	}
	return h.terms[bucket]
}

// has reports whether a bucket is still leased in that term.
func (h *holding) has(bucket, term int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terms[bucket] == term && time.Now().Before(h.expires)
}

// until returns the earlier of t and the end of the leases.
func (h *holding) until(t time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.expires.Before(t) {
		return h.expires
	}
	return t
}

// giveBack ends the leases, except those of buckets that are still being published. Those that
// cannot be given back expire.
func (h *holding) giveBack(ctx context.Context, busy func(bucket int64) bool) {
	ctx, cancel := context.WithTimeout(ctx, min(h.ttl, 5*time.Second))
	defer cancel()
	h.mu.Lock()
	var units []int64
	for bucket := range h.terms {
		units = append(units, bucket)
	}
	clear(h.terms)
	h.mu.Unlock()
	units = slices.DeleteFunc(units, busy)
	_ = h.store.Unlease(ctx, bucketLeases, h.owner, units)
	_ = h.store.Unlease(ctx, relayLeases, h.owner, []int64{h.self})
}
