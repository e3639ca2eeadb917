package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// BatchEnded implements middleware.BatchHook.
func (t *Telemetry) BatchEnded(b middleware.BatchEnd) {
	ctx := context.Background()
	consumer := keyConsumer.String(cut(b.Consumer.Service + "/" + b.Consumer.Handler))
	with := func(attrs ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(attrs, consumer)...)
	}
	result := "committed"
	switch {
	case errors.Is(b.Lost, stores.ErrCommitUnknown):
		result = "unknown"
	case b.Lost != nil:
		result = "lost"
	case b.Kept == 0:
		result = "empty"
	}
	t.metrics.batches.Add(ctx, 1, with(keyBatchResult.String(result)))
	t.metrics.batchSize.Record(ctx, float64(b.Size), with())
	for _, of := range []struct {
		fate string
		n    int
	}{{"kept", b.Kept}, {"not_won", b.NotWon}, {"failed", b.Failed}, {"apart", b.Apart}, {"late", b.Late}} {
		if of.n > 0 {
			t.metrics.members.Add(ctx, int64(of.n), with(keyFate.String(of.fate)))
		}
	}
}
