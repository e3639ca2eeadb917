package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
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

// Connect opens the connection of who listens.
type Connect func(context.Context) (*pgx.Conn, error)

// Listen calls wake when messages may have become due, on a connection that it closes
// in the end. It returns why it has stopped.
func (t *Tables) Listen(ctx context.Context, connect Connect, wake func()) error {
	return t.listen(ctx, connect, func() string { return t.channel }, func(string) { wake() })
}

// ListenOutbox does so when outputs were committed.
func (t *Tables) ListenOutbox(ctx context.Context, connect Connect, wake func(stores.OutboxWake)) error {
	return t.listen(ctx, connect, t.outboxChannel, func(said string) {
		var w stores.OutboxWake
		_, _ = fmt.Sscan(said, &w.Sender, &w.Number) // of somebody else: it is poked all the same
		wake(w)
	})
}

func (t *Tables) outboxChannel() string { return strings.Replace(t.channel, "due", "outbox", 1) }

// WakeRelays implements stores.OutboxWaker, in one trip. The commit waits for no disk.
func (t *Tables) WakeRelays(ctx context.Context, w stores.OutboxWake) error {
	if err := t.shared.Ready(ctx); err != nil {
		return err
	}
	_, err := t.db.Send(ctx, Statement{Text: wakeRelays, Args: []any{t.outboxChannel(), fmt.Sprint(w.Sender, " ", w.Number)}})
	if err != nil {
		return t.shared.Explain(ctx, err)
	}
	return nil
}

var wakeRelays = qualify("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)::text")

func (t *Tables) listen(ctx context.Context, connect Connect, channel func() string, wake func(said string)) error {
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
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel()}.Sanitize()); err != nil {
		return t.listened(ctx, err)
	}
	wake("") // for what happened before there was anybody to listen
	for {
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			return t.listened(ctx, err)
		}
		wake(heard.Payload)
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
