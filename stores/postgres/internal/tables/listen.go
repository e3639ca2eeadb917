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
	// soon is how close a due time must be to wake listeners.
	soon = 100 * time.Millisecond
	// wakeEvery is how often one store wakes listeners at most: the server serializes commits that
	// notify, and one wake-up stands for many messages.
	wakeEvery = 100 * time.Millisecond

	// notified is a column that wakes listeners if there is a channel.
	notified = "length(CASE WHEN @channel::text IS NOT NULL THEN pg_notify(@channel::text, '')::text END)"
)

// mayWake reports whether to wake listeners now, and then says false for a while.
func (t *Tables) mayWake() bool {
	now, last := int64(time.Since(started)), t.woken.Load()
	return (last == 0 || now-last >= int64(wakeEvery)) && t.woken.CompareAndSwap(last, now)
}

var started = time.Now()

// channelOf returns the notification channel for a set of tables.
func channelOf(names sqlstore.Names) string {
	const digits = 8
	sum := sha256.Sum256([]byte(names.Table("failure")))
	return "millpond_due_" + hex.EncodeToString(sum[:digits])
}

// Connect opens the connection for a listener.
type Connect func(context.Context) (*pgx.Conn, error)

// Listen calls wake when messages may be due. It opens a connection, closes it at the end, and
// returns why it stopped.
func (t *Tables) Listen(ctx context.Context, connect Connect, wake func()) error {
	return t.listen(ctx, connect, func() string { return t.channel }, func(string) { wake() })
}

// ListenOutbox calls wake when outputs were committed.
func (t *Tables) ListenOutbox(ctx context.Context, connect Connect, wake func(stores.OutboxWake)) error {
	return t.listen(ctx, connect, t.outboxChannel, func(said string) {
		var w stores.OutboxWake
		_, _ = fmt.Sscan(said, &w.Sender, &w.Number) // foreign notifications also wake
		wake(w)
	})
}

func (t *Tables) outboxChannel() string { return strings.Replace(t.channel, "due", "outbox", 1) }

// WakeRelays implements stores.OutboxWaker in one round trip. The commit does not wait for the
// disk.
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
	wake("") // for events before the listener was there
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

// wake wakes listeners after n messages became due. It ignores errors, because listeners also poll.
func (t *Tables) wake(ctx context.Context, n int) {
	if n > 0 {
		_, _ = t.db.Send(ctx, Statement{Text: notify, Args: []any{t.channel}})
	}
}

var notify = qualify("SELECT pg_notify($1, '')::text")
