package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectWatermarks = `SELECT id, service, handler, {us}purged_through{/us}, {us}announced_at{/us}, {us}late_time{/us}, {us}late_at{/us}, {us}stale_until{/us}
FROM {schema.}{prefix}consumer ORDER BY service, handler`

	readNow = `SELECT {us}{now}{/us}`

	announce = `UPDATE {schema.}{prefix}consumer SET purged_through = ?, announced_at = {now} WHERE id = ? AND (purged_through IS NULL OR purged_through < ?)`

	// A program that does not know the step would run purged messages again. Once is enough, so the
	// right is needed only once.
	keptOut = `SELECT max(compatible) FROM {schema.}{prefix}schema`
	keepOut = `UPDATE {schema.}{prefix}schema SET compatible = 5 WHERE compatible < 5`

	noteLate = `UPDATE {schema.}{prefix}consumer SET late_time = ?, late_at = {now}
WHERE id = ? AND (late_at IS NULL OR late_time >= ? OR late_at < ({now} - (?{microseconds})))`

	acceptStale = `UPDATE {schema.}{prefix}consumer SET stale_until = {now} + (?{microseconds}) WHERE id = ?`
)

// LateFor is how long a noted late delivery counts.
const LateFor = 24 * time.Hour

// Watermarks implements stores.Purger.
func (s Store) Watermarks(ctx context.Context) (w stores.Watermarks, err error) {
	if err := s.t.Ready(ctx); err != nil {
		return w, err
	}
	var now int64
	if _, err = First(ctx, s.t.db, Statement{Text: s.t.fixed(readNow)}, &now); err == nil {
		w.Now = time.UnixMicro(now)
		w.Consumers, err = list(ctx, s.t.db, Statement{Text: s.t.fixed(selectWatermarks)}, func(rows Rows) (m stores.Watermark, err error) {
			var (
				id                                                  int64
				purged, announced, lateTime, lateAt, staleUntilTime *int64
			)
			err = rows.Scan(&id, &m.Consumer.Service, &m.Consumer.Handler, &purged, &announced, &lateTime, &lateAt, &staleUntilTime)
			m.PurgedThrough, m.AnnouncedAt, m.StaleUntil = Instant(purged), Instant(announced), Instant(staleUntilTime)
			m.LateTime, m.LateAt = Instant(lateTime), Instant(lateAt)
			return m, err
		})
	}
	if err != nil {
		return stores.Watermarks{}, s.t.Explain(ctx, err)
	}
	return w, nil
}

// Announce implements stores.Purger, in one commit.
func (s Store) Announce(ctx context.Context, c stores.Consumer, through time.Time) error {
	return s.ofConsumer(ctx, func(tx Sender) error {
		var compatible int64
		if _, err := First(ctx, tx, Statement{Text: s.t.fixed(keptOut)}, &compatible); err != nil {
			return err
		}
		if compatible < 5 {
			if _, err := tx.Send(ctx, Statement{Text: s.t.fixed(keepOut)}); err != nil {
				return fmt.Errorf("programs that do not know how to purge must be kept out: make the first purge with millpond purge, under the account of the migrations: %w", err)
			}
		}
		at := s.t.Dialect().Time(through.Add(stores.ClockMargin))
		_, err := tx.Send(ctx, Statement{Text: s.t.fixed(announce), Args: []any{at, ConsumerNumber(c), at}})
		return err
	})
}

// NoteLate implements stores.Purger, in one commit.
func (s Store) NoteLate(ctx context.Context, c stores.Consumer, delivered time.Time) error {
	return s.ofConsumer(ctx, func(tx Sender) error {
		at := s.t.Dialect().Time(delivered)
		_, err := tx.Send(ctx, Statement{Text: s.t.fixed(noteLate), Args: []any{at, ConsumerNumber(c), at, LateFor.Microseconds()}})
		return err
	})
}

// AcceptStale implements stores.Purger, in one commit.
func (s Store) AcceptStale(ctx context.Context, c stores.Consumer, d time.Duration) error {
	return s.ofConsumer(ctx, func(tx Sender) error {
		return one(tx.Send(ctx, Statement{Text: s.t.fixed(acceptStale), Args: []any{d.Microseconds(), ConsumerNumber(c)}}))
	})
}

func (s Store) ofConsumer(ctx context.Context, f func(Sender) error) error {
	if err := s.t.Ready(ctx); err != nil {
		return err
	}
	if err := s.t.db.Write(ctx, f); err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
