package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/millpond-go/millpond/stores"
)

// Relayed implements outbox.Hook.
func (t *Telemetry) Relayed(destination string, published, refused, failed int) {
	for _, one := range []struct {
		result string
		n      int
	}{{"published", published}, {"refused", refused}, {"failed", failed}} {
		if one.n > 0 {
			t.metrics.relayed.Add(context.Background(), int64(one.n), metric.WithAttributes(keyDestination.String(cut(destination)), keyResult.String(one.result)))
		}
	}
}

// Backlog implements outbox.Hook.
func (t *Telemetry) Backlog(counts []stores.OutputCount) { t.backlog.Store(&counts) }

func (t *Telemetry) observeBacklog(o metric.Observer) {
	counts := t.backlog.Load()
	if counts == nil {
		return
	}
	for _, c := range *counts {
		of := keyDestination.String(cut(c.Destination))
		o.ObserveInt64(t.metrics.waiting, int64(c.N), metric.WithAttributes(of, keyOutput.String(string(c.State))))
		if c.State == stores.OutputPending {
			o.ObserveFloat64(t.metrics.lag, c.Age.Seconds(), metric.WithAttributes(of))
		}
	}
}
