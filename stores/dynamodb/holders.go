package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// holders are the leases under one name: expiry by owner and unit. They are one item, so a relay
// renews many units with one write.
type holders map[string]map[int64]int64

// Lease implements stores.Leases with a read and a write, repeated if another owner was faster.
func (s *Store) Lease(ctx context.Context, r stores.LeaseRequest) (leased stores.Leased, err error) {
	err = s.holding(ctx, r.Name, func(has holders, low, high int64) {
		taken := make(map[int64]bool)
		for owner, units := range has {
			for unit, until := range units {
				switch expired := until+hostMargin.Microseconds() <= low; {
				case !expired && owner != r.Owner:
					taken[unit] = true
				case expired && (owner != r.Owner || !slices.Contains(r.Units, unit)):
					delete(units, unit)
				}
			}
			if len(units) == 0 {
				delete(has, owner)
			}
		}
		mine := has[r.Owner]
		if mine == nil {
			mine = make(map[int64]int64)
			has[r.Owner] = mine
		}
		leased = stores.Leased{}
		for _, free := range []bool{false, true} {
			for _, unit := range r.Units {
				_, had := mine[unit]
				if had == free || free && (taken[unit] || len(leased.Units) >= r.Limit) {
					continue
				}
				mine[unit] = high + r.TTL.Microseconds()
				leased.Units = append(leased.Units, unit)
			}
		}
		leased.Live = len(taken) + len(mine)
	})
	return leased, err
}

// Unlease implements stores.Leases.
func (s *Store) Unlease(ctx context.Context, name, owner string, units []int64) error {
	return s.holding(ctx, name, func(has holders, _, _ int64) {
		for _, unit := range units {
			delete(has[owner], unit)
		}
	})
}

// holders returns the leases under a name, and their item.
func (s *Store) holders(ctx context.Context, name string) (has holders, seen item, err error) {
	seen, err = s.get(ctx, key(kindLease, nil, []byte(name)))
	if err != nil {
		return nil, nil, err
	}
	has = make(holders)
	if old := blob(seen["has"]); old != nil {
		if err := json.Unmarshal(old, &has); err != nil {
			return nil, nil, fmt.Errorf("dynamodb: %w: the leases of %q cannot be read: %w", stores.ErrUnavailable, name, err)
		}
	}
	return has, seen, nil
}

// holding changes the leases under a name by a function, which gets the bounds of the time.
func (s *Store) holding(ctx context.Context, name string, change func(has holders, low, high int64)) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for {
		has, seen, err := s.holders(ctx, name)
		if err != nil {
			return err
		}
		low, high := s.clock.bounds()
		change(has, low, high)
		now := key(kindLease, nil, []byte(name))
		written, err := json.Marshal(has)
		if err != nil {
			return fmt.Errorf("dynamodb: %w", err)
		}
		now["own"], now["has"] = bin(newOwn()), bin(written)
		err = s.replace(ctx, now, guard{seen: rowOf(seen)})
		if !errors.Is(err, stores.ErrChanged) || !pause.Sleep(ctx, pause.Jitter(20*time.Millisecond)) {
			return err
		}
	}
}
