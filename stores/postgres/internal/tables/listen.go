package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

const (
	// soon is when a message is due that is worth waking others for.
	soon = 100 * time.Millisecond
	// wakeEvery is how often one store wakes listeners: commits that notify are
	// serialized by the server, and one wake stands for many messages.
	wakeEvery = 100 * time.Millisecond

	// notified is a column that wakes listeners, if there is a channel.
	notified = "length(CASE WHEN @channel::text IS NOT NULL THEN pg_notify(@channel::text, '')::text END)"
)

// mayWake reports whether listeners should be woken now, and then says no for a while.
func (t *Tables) mayWake() bool {
	now, last := int64(time.Since(started)), t.woken.Load()
	return (last == 0 || now-last >= int64(wakeEvery)) && t.woken.CompareAndSwap(last, now)
}

var started = time.Now()

// channelOf returns the channel of a set of tables.
func channelOf(names sqlstore.Names) string {
	const digits = 8
	sum := sha256.Sum256([]byte(names.Table("failure")))
	return "millpond_due_" + hex.EncodeToString(sum[:digits])
}

// Listen calls wake when messages may have become due, on a connection that it closes
// in the end. It returns why it has stopped.
func (t *Tables) Listen(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), wake func()) error {
	if err := t.shared.Ready(ctx); err != nil {
		return err
	}
	conn, err := connect(ctx)
	if err != nil {
		return t.listened(ctx, err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{t.channel}.Sanitize()); err != nil {
		return t.listened(ctx, err)
	}
	for {
		wake() // also for what came due before there was anybody to listen
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return t.listened(ctx, err)
		}
	}
}

func (t *Tables) listened(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("postgres: listen: %w", context.Cause(ctx))
	}
	return t.shared.Explain(ctx, err)
}

// wake wakes listeners after n messages have become due. They poll all the same, so an
// error does not matter.
func (t *Tables) wake(ctx context.Context, n int) {
	if n > 0 {
		_, _ = t.db.Send(ctx, Statement{Text: notify, Args: []any{t.channel}})
	}
}

var notify = qualify("SELECT pg_notify($1, '')::text")
