package pgtest

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// BrokenTracer is a tracer of a program that panics at each rollback, or batch, while it is armed.
type BrokenTracer struct{ Armed, Batches atomic.Bool }

// TraceQueryStart implements pgx.QueryTracer.
func (b *BrokenTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == "rollback" && b.Armed.Load() {
		panic("a tracer")
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*BrokenTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (b *BrokenTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if b.Batches.Load() {
		panic("a tracer")
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*BrokenTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*BrokenTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
