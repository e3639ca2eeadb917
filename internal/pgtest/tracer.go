package pgtest

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// BrokenTracer is a tracer of a program that panics at each rollback while it is armed.
type BrokenTracer struct{ Armed atomic.Bool }

// TraceQueryStart implements pgx.QueryTracer.
func (b *BrokenTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == "rollback" && b.Armed.Load() {
		panic("a tracer")
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*BrokenTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
