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
		name: "outputs are settled by number alone",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.settle = func(ctx context.Context, s stores.Settlement) error {
				s.CreatedAt = nil
				return o.Outbox.Settle(ctx, s)
			}
		}),
		fails: []string{"outbox/numbers that are others' now"},
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
		name: "outputs are listed whatever their destination",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.outputs = func(ctx context.Context, q stores.OutputQuery) ([]stores.OutputRow, error) {
				q.Destination = nil
				return o.OutboxInspector.Outputs(ctx, q)
			}
		}),
		fails: []string{"outbox/what operators see"},
	},
	{
		name: "a decision about outputs does nothing",
		wrap: onOutbox(func(o *brokenOutbox) {
			o.change = func(context.Context, stores.OutputChange) (stores.Changed, error) {
				return stores.Changed{Changed: 1, Done: true}, nil
			}
		}),
		fails: []string{"outbox/what operators decide", "outbox/operators at once"},
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
		name: "what an attempt says is said twice",
		wrap: onEmit(func(e stores.Emitter, outputs []stores.Output) error {
			return e.Emit(append(outputs, outputs...))
		}),
		fails: []string{"outputs/they commit with the attempt"},
	},
	{
		name: "what an attempt says is lost",
		wrap: onEmit(func(stores.Emitter, []stores.Output) error { return nil }),
		fails: []string{
			"outputs/they commit with the attempt", "outputs/content byte by byte", "outputs/what is no output", "outputs/none after the end",
			"outputs/large ones", "outputs/a takeover says something", "statement/Exec",
		},
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
	stores.OutboxInspector
	inner stores.Store

	settle  func(context.Context, stores.Settlement) error
	pending func(context.Context, stores.PendingQuery) (stores.Pending, error)
	lease   func(context.Context, stores.LeaseRequest) (stores.Leased, error)
	outputs func(context.Context, stores.OutputQuery) ([]stores.OutputRow, error)
	change  func(context.Context, stores.OutputChange) (stores.Changed, error)
}

func onOutbox(change func(*brokenOutbox)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store {
		inner := s.(stores.Outbox)
		inspect := s.(stores.OutboxInspector)
		o := &brokenOutbox{
			Store: s, inner: s, Outbox: inner, OutboxInspector: inspect, settle: inner.Settle, pending: inner.Pending, lease: inner.Lease,
			outputs: inspect.Outputs, change: inspect.ChangeOutputs,
		}
		change(o)
		return o
	}
}

func (o *brokenOutbox) Unwrap() stores.Store { return o.inner }

func (o *brokenOutbox) Settle(ctx context.Context, s stores.Settlement) error {
	return o.settle(ctx, s)
}

func (o *brokenOutbox) Outputs(ctx context.Context, q stores.OutputQuery) ([]stores.OutputRow, error) {
	return o.outputs(ctx, q)
}

func (o *brokenOutbox) ChangeOutputs(ctx context.Context, c stores.OutputChange) (stores.Changed, error) {
	return o.change(ctx, c)
}

func (o *brokenOutbox) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	return o.pending(ctx, q)
}

func (o *brokenOutbox) Lease(ctx context.Context, r stores.LeaseRequest) (stores.Leased, error) {
	return o.lease(ctx, r)
}

func onEmit(emit func(stores.Emitter, []stores.Output) error) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, db *sql.DB) stores.Store {
		return onOutbox(func(o *brokenOutbox) {
			o.Store = onAttempt(func(a stores.Attempt) stores.Attempt { return brokenEmitter{a, emit} })(s, db)
		})(s, db)
	}
}

type brokenEmitter struct {
	stores.Attempt
	emit func(e stores.Emitter, outputs []stores.Output) error
}

func (b brokenEmitter) Emit(outputs []stores.Output) error {
	return b.emit(b.Attempt.(stores.Emitter), outputs)
}
