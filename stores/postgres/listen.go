package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	// soon is when a message is due that is worth waking others for.
	soon = 100 * time.Millisecond
	// wakeEvery is how often one store wakes listeners: commits that notify are
	// serialized by the server, and one wake stands for many messages.
	wakeEvery = 100 * time.Millisecond

	notify = "SELECT pg_notify($1, '')"
)

// mayWake reports whether listeners should be woken now, and then says no for a while.
func (s *Store) mayWake() bool {
	now, last := int64(time.Since(started)), s.woken.Load()
	return (last == 0 || now-last >= int64(wakeEvery)) && s.woken.CompareAndSwap(last, now)
}

var started = time.Now()

// channelOf returns the channel of a set of tables.
func channelOf(names sqlstore.Names) string {
	const digits = 8
	sum := sha256.Sum256([]byte(names.Table("failure")))
	return "millpond_due_" + hex.EncodeToString(sum[:digits])
}

// Listen implements stores.Waker, on a connection of its own that is opened by way of
// the pool and does not count towards its limit. Behind a pooler in transaction mode
// nothing is ever heard.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	pooled, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel}.Sanitize()); err != nil {
		return s.listened(ctx, err)
	}
	for {
		wake() // also for what came due before there was anybody to listen
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return s.listened(ctx, err)
		}
	}
}

func (s *Store) listened(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("postgres: listen: %w", context.Cause(ctx))
	}
	return s.unavailable(err)
}

var _ stores.Waker = (*Store)(nil)

// wake wakes listeners after n messages have become due. They poll all the same, so an
// error does not matter.
func (s *Store) wake(ctx context.Context, n int) {
	if n > 0 {
		_, _ = s.pool.Exec(ctx, notify, s.channel)
	}
}
