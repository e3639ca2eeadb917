package router

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/stores"
)

// warnOfNewNames warns of old names of handlers under which no consumer is registered: a
// misspelt name makes a new consumer, which runs redelivered messages again. It is no
// error, because a new deployment has no consumers yet. Call it before the handlers are
// registered.
func (r *run) warnOfNewNames(ctx context.Context) {
	renamed := r.inboxed.Renamed
	if len(renamed) == 0 {
		return
	}
	all, err := r.store.Consumers(ctx)
	if err != nil {
		r.log.Warn("millpond: the old names of renamed handlers cannot be checked", slog.String("error", withoutSecrets(err, r.config.Store.URL).Error()))
		return
	}
	var known []string
	for _, c := range all {
		if c.Service == r.config.Service {
			known = append(known, c.Handler)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(renamed)) {
		before := renamed[name]
		if slices.Contains(known, before) {
			continue
		}
		attrs := []any{
			slog.String("handler", name), slog.String("renamed_from", before),
			slog.String("consumer", stores.Consumer{Service: r.config.Service, Handler: before}.String()),
			slog.String("known", strings.Join(known, ", ")),
		}
		if best, ok := field.Nearest(before, known); ok {
			attrs = append(attrs, slog.String("did you mean", best))
		}
		r.log.Warn("millpond: renamed_from names a handler that was never registered here, so redelivered messages run again: correct it, unless this deployment is new", attrs...)
	}
}
