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

// Names of leases: the buckets, and the relays themselves, which are counted by them.
const (
	bucketLeases = "outbox"
	relayLeases  = "outbox relay"
)

// holding is what a relay has leased. Who joins takes free buckets only; who has more than
// its share gives some up.
type holding struct {
	store stores.Leases
	ttl   time.Duration
	owner string
	self  int64 // the unit that stands for the relay

	mu      sync.Mutex
	terms   map[int64]int64 // by bucket: grows when it is gained anew
	term    int64
	expires time.Time // by the own clock, from before the renewal was sent
	leaving map[int64]bool
	live    int // relays, when it was last renewed
}

func newHolding(store stores.Leases, ttl time.Duration) *holding {
	host, _ := os.Hostname()
	self := rand.Int64() //nolint:gosec // it tells relays apart, and keeps no secret
	return &holding{
		store: store, ttl: ttl, owner: fmt.Sprintf("%.100s/%d/%x", host, os.Getpid(), self), self: self,
		terms: make(map[int64]int64), leaving: make(map[int64]bool),
	}
}

// renew renews the leases. What is too much is given back as soon as busy says that nothing
// of it is being published. The new state is entered by change.
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
	for i := range units { // all in one order, or those that begin at once wait for each other in a circle
		units[i] = int64(i)
	}
	leased, err := h.store.Lease(ctx, stores.LeaseRequest{Name: bucketLeases, Owner: h.owner, Units: units, Limit: share, TTL: h.ttl})
	if err != nil {
		return err
	}
	change(func() bool { return h.have(leased.Units, relays.Live, asked) })
	return nil
}

// giveUp lets no more be begun of what is above the share, and returns what can be given
// back: it is not had any more.
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
	if !time.Now().Before(h.expires) { // somebody else may have had them meanwhile
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

// known reports whether it is known what the relay has, be it nothing.
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

// buckets returns those of which something may be begun.
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

// termOf is that in which something of a bucket may be begun, 0 if it may not.
func (h *holding) termOf(bucket int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaving[bucket] {
		return 0
	}
	return h.terms[bucket]
}

// has reports whether a bucket is still leased, in the same term.
func (h *holding) has(bucket, term int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terms[bucket] == term && time.Now().Before(h.expires)
}

// until is the earlier of a time and the end of the leases.
func (h *holding) until(t time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.expires.Before(t) {
		return h.expires
	}
	return t
}

// giveBack ends the leases, but of what is still being published. What cannot be given back
// expires.
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
