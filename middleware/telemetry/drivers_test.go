package telemetry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/stores/postgres"
)

// queries makes a span of each statement, as the instrumentation of drivers does.
type queries struct{ tracer trace.Tracer }

type queryKey struct{}

func (q queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	ctx, span := q.tracer.Start(ctx, data.SQL)      //nolint:spancheck // TraceQueryEnd ends it
	return context.WithValue(ctx, queryKey{}, span) //nolint:spancheck // likewise
}

// TraceQueryEnd is called for queries in batches, too, of which it knows no beginning.
func (q queries) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if span, ok := ctx.Value(queryKey{}).(trace.Span); ok {
		span.End()
	}
}

// What instruments the driver sees the span of the delivery in the handler's context.
func TestStatementsAreBeneath(t *testing.T) {
	rig := newRig(t, both["memory"])
	rig.queries = queries{rig.tracers.Tracer("pgx")}
	r := rig.run(func(ctx context.Context, _ *message.Message) error {
		tx, ok := postgres.TxFromContext(ctx)
		if !ok {
			return errors.New("there is no transaction")
		}
		_, err := tx.Exec(ctx, "SELECT 42")
		return err
	})
	r.publish("1", "pears")
	process := r.deliveries(1, "1")[0]
	require.Len(t, r.beneath(process, "SELECT 42"), 1)
	require.Equal(t, "completed", text(process, "millpond.result"))
}
