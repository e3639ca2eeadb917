package storetest

import (
	"context"
	"database/sql"

	"github.com/millpond-go/millpond/stores"
)

// brokenOutboxes break one rule of stores.Outbox or stores.Leases each.
var brokenOutboxes = []variant{
	{
		name: "refused outputs are lost",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.settle = func(ctx context.Context, s stores.Settlement) error {
				for i := range s.Refused {
					s.Published = append(s.Published, s.Refused[i].Number)
				}
				return o.Outbox.Settle(ctx, stores.Settlement{Published: s.Published, Keep: s.Keep})
			}
		}),
		fails: []string{"outbox/refused and failed"},
	},
	{
		name: "a dead letter blocks nothing",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.settle = func(ctx context.Context, s stores.Settlement) error {
				for i := range s.Refused {
					s.Refused[i].Blocks = false
				}
				return o.Outbox.Settle(ctx, s)
			}
		}),
		fails: []string{"outbox/refused and failed"},
	},
	{
		name: "published outputs stay",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.settle = func(context.Context, stores.Settlement) error { return nil }
		}),
		fails: []string{"outbox/published and kept"},
	},
	{
		name: "what was published is not kept",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.settle = func(ctx context.Context, s stores.Settlement) error {
				s.Keep = false
				return o.Outbox.Settle(ctx, s)
			}
		}),
		fails: []string{"outbox/published and kept"},
	},
	{
		name: "nothing is left out",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.pending = func(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
				return o.Outbox.Pending(ctx, stores.PendingQuery{Buckets: q.Buckets, After: q.After, Limit: q.Limit, Bytes: q.Bytes})
			}
		}),
		fails: []string{"outbox/what is left out"},
	},
	{
		name: "bytes are not limited",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.pending = func(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
				q.Bytes = 1 << 30
				return o.Outbox.Pending(ctx, q)
			}
		}),
		fails: []string{"outbox/limits"},
	},
	{
		name: "everybody has every lease",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.lease = func(_ context.Context, r stores.LeaseRequest) (stores.Leased, error) {
				return stores.Leased{Units: r.Units, Live: len(r.Units)}, nil
			}
		}),
		fails: []string{"lease/one owner at a time", "lease/many ask at once"},
	},
	{
		name: "leases never expire",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.lease = func(ctx context.Context, r stores.LeaseRequest) (stores.Leased, error) {
				r.TTL = patience * 10
				return o.Outbox.Lease(ctx, r)
			}
		}),
		fails: []string{"lease/they expire by the database's clock"},
	},
}

type brokenOutbox struct {
	stores.Store
	stores.Outbox

	settle  func(context.Context, stores.Settlement) error
	pending func(context.Context, stores.PendingQuery) (stores.Pending, error)
	lease   func(context.Context, stores.LeaseRequest) (stores.Leased, error)
}

func onOutbox(change func(*brokenOutbox)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store {
		inner := s.(stores.Outbox)
		o := &brokenOutbox{Store: s, Outbox: inner, settle: inner.Settle, pending: inner.Pending, lease: inner.Lease}
		change(o)
		return o
	}
}

func (o *brokenOutbox) Unwrap() stores.Store { return o.Store }

func (o *brokenOutbox) Settle(ctx context.Context, s stores.Settlement) error {
	return o.settle(ctx, s)
}

func (o *brokenOutbox) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	return o.pending(ctx, q)
}

func (o *brokenOutbox) Lease(ctx context.Context, r stores.LeaseRequest) (stores.Leased, error) {
	return o.lease(ctx, r)
}
