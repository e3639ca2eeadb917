package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Hook is told what a relay does. Destinations are the names of Config.Publishers. It is called by
// several goroutines at once: one for each destination, which waits for it, and one for Backlog.
type Hook interface {
	// Relayed is called when messages were handed to a destination: how many it accepted, refused
	// (they are tried again), and refused for good.
	Relayed(destination string, published, refused, failed int)
	// Backlog is called every ten seconds with the counts of the whole store: messages that wait,
	// and messages that have failed. Counts are bounded.
	Backlog(counts []stores.OutputCount)
}

const (
	countEvery = 10 * time.Second
	alarmEvery = time.Minute
)

// Backlog returns what waits to be published and what has failed, by destination, at most ten
// seconds old. It is nil before the first count, and for stores that are no
// stores.OutboxInspector.
func (r *Relay) Backlog() []stores.OutputCount {
	if counts := r.backlog.Load(); counts != nil {
		return *counts
	}
	return nil
}

// watch counts regularly, and raises the alarm.
func (r *Relay) watch(ctx context.Context, store stores.OutboxInspector) {
	var alarm time.Time // the last alarm; zero: none
	for ctx.Err() == nil {
		counts, err := store.OutputCounts(ctx, r.config.AlarmSize+1, stores.OutputPending, stores.OutputFailed)
		if err == nil {
			r.backlog.Store(&counts)
			r.tell(func(h Hook) { h.Backlog(counts) })
			alarm = r.alarm(ctx, counts, alarm)
		}
		pause.Sleep(ctx, countEvery)
	}
}

func (r *Relay) alarm(ctx context.Context, counts []stores.OutputCount, last time.Time) time.Time {
	waiting, oldest := 0, time.Duration(0)
	for _, c := range counts {
		if c.State == stores.OutputPending {
			waiting, oldest = waiting+c.N, max(oldest, c.Age)
		}
	}
	attrs := []any{slog.Int("waiting", waiting), slog.Duration("oldest", oldest.Round(time.Millisecond))}
	switch over := waiting > r.config.AlarmSize || oldest > r.config.AlarmAge; {
	case over && time.Since(last) >= alarmEvery:
		r.config.Logger.ErrorContext(ctx, "millpond: outbox: too many messages wait to be published, or one waits too long", attrs...)
		return time.Now()
	case !over && !last.IsZero():
		r.config.Logger.InfoContext(ctx, "millpond: outbox: the number and age of waiting messages are within the limits again", attrs...)
		return time.Time{}
	}
	return last
}

// tell calls the hook. Its panic is logged and does not stop the relay.
func (r *Relay) tell(what func(Hook)) {
	if r.config.Hook != nil {
		r.apart("Config.Hook", func() error {
			what(r.config.Hook)
			return nil
		})
	}
}
