package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

// watchedStore announces what is done to failed messages. It changes nothing, but for
// shorter reservations.
type watchedStore struct {
	stores.Store
	stores.Outbox // of the same
	journal       stores.LeaseInbox

	recorder *recorder
	leases   leases
	asked    atomic.Uint64 // questions whose reply may be lost
}

var (
	_ stores.Resolver = (*watchedStore)(nil)
	_ stores.Waker    = (*watchedStore)(nil)
)

func (w *watchedStore) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	if c.Take == 0 {
		return w.Store.Begin(ctx, c)
	}
	w.recorder.at(ctx, pointTakeoverStart)
	w.recorder.say(ctx, saidTakes, nil)
	attempt, verdict, err := w.Store.Begin(ctx, c)
	if attempt == nil {
		return attempt, verdict, err
	}
	w.recorder.at(ctx, pointTakeoverEnd)
	if lost := w.lost(); lost != nil {
		return nil, stores.Verdict{}, errors.Join(lost, attempt.Rollback(ctx))
	}
	return attempt, verdict, nil
}

// BatchLimit implements stores.Batcher.
func (w *watchedStore) BatchLimit(concurrent int) int {
	return w.Store.(stores.Batcher).BatchLimit(concurrent) //nolint:forcetypeassert // for stores that are
}

// BeginBatch implements stores.Batcher.
func (w *watchedStore) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	b, err := w.Store.(stores.Batcher).BeginBatch(ctx, claims) //nolint:forcetypeassert // for stores that are
	if err != nil {
		return nil, err
	}
	w.recorder.at(ctx, pointBatchBegun)
	return &watchedBatch{b, w.recorder}, nil
}

func (w *watchedStore) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if f.Start {
		if f.Placement == stores.PlacementParked {
			f.DueIn = min(f.DueIn, reserve)
		}
		of := ctx
		if storyOf(ctx) == (story{}) { // a codec is asked before the delivery begins
			of = context.WithValue(ctx, storyKey{}, story{f.Key.Consumer.Handler, formatID(f.Key.ID), "", true, nil})
		}
		w.recorder.say(of, saidCounting, f.Attempts)
		asked := time.Now()
		version, err := w.Store.Record(ctx, f)
		w.recorder.say(ctx, "attempt counted before it begins:", fmt.Sprintf("%d: %v", f.Attempts, err))
		if err == nil {
			w.holds(ctx, version, asked)
			w.recorder.at(ctx, pointCounted)
			err = w.lost()
		}
		return version, err
	}
	w.recorder.at(ctx, pointRecordStart)
	w.recorder.during(ctx, pointRecord)
	if !f.Lapsed {
		w.recorder.say(ctx, saidChanges, f.Class)
	}
	version, err := w.Store.Record(ctx, f)
	w.recorder.say(ctx, "record:", fmt.Sprintf("%s %s, %d attempts, %d uncounted, due in %s: %v", f.Status, f.Class, f.Attempts, f.Uncounted, f.DueIn, err))
	if err == nil {
		if !f.Lapsed {
			w.recorder.say(ctx, saidChanged, nil)
		}
		w.recorder.at(ctx, pointRecordEnd)
		err = w.lost()
	}
	return version, err
}

func (w *watchedStore) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	q.Reserve = min(q.Reserve, reserve)
	due, err := w.Store.Due(ctx, q)
	if len(due) > 0 {
		w.recorder.at(ctx, pointDue)
	}
	return due, err
}

func (w *watchedStore) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	return w.Store.Renew(ctx, reserved, min(d, reserve))
}

func (w *watchedStore) Release(ctx context.Context, reserved []stores.Retry) error {
	if len(reserved) > 0 {
		w.recorder.at(ctx, pointRelease)
	}
	return w.Store.Release(ctx, reserved)
}

// Resolve implements stores.Resolver.
func (w *watchedStore) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	return w.Store.(stores.Resolver).Resolve(ctx, k) //nolint:forcetypeassert // both stores are
}

var errNoWaker = errors.New("this store wakes nobody")

// Listen implements stores.Waker.
func (w *watchedStore) Listen(ctx context.Context, wake func()) error {
	if waker, ok := w.Store.(stores.Waker); ok {
		return waker.Listen(ctx, wake)
	}
	return errNoWaker
}

// noLocalTime sees to it that no time of this process is ever sent to the server.
type noLocalTime struct{}

var (
	_ pgx.QueryTracer = noLocalTime{}
	_ pgx.BatchTracer = noLocalTime{}
)

func (n noLocalTime) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	n.check(d.SQL, d.Args)
	return ctx
}

func (noLocalTime) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (noLocalTime) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (n noLocalTime) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	n.check(d.SQL, d.Args)
}

func (noLocalTime) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (noLocalTime) check(sql string, args []any) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case time.Time, *time.Time:
			fmt.Fprintf(os.Stderr, "%sthe local time %v goes to the server: %s\n", workerFailure, arg, sql)
		case pgx.NamedArgs:
			for _, value := range arg {
				noLocalTime{}.check(sql, []any{value})
			}
		}
	}
}
