package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/stores"
)

// Ready returns nil unless the intake is paused, like [Inbox.Paused]. While it is paused, each
// call asks the store, with a claim of no message that is rolled back. If the store answers, the
// intake resumes before the next message comes.
//
// If strangers can call Ready, bound their calls: each one may reach the store.
func (in *Inbox) Ready(ctx context.Context) error {
	paused := in.Paused()
	if paused == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, in.config.ClaimTimeout)
	defer cancel()
	consumer, known, err := in.consumers.recent(ctx)
	if !known {
		return paused
	}
	if err == nil {
		err = in.askFor(ctx, consumer)
	}
	if err != nil {
		in.core.Completed.Flush() // the next answer may come from another server
		if errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrNotRegistered) {
			in.consumers.forget()
		}
		return fmt.Errorf("middleware: the intake is paused: %w", err)
	}
	in.core.Gate.Answered()
	return in.Paused()
}

// serverChanged registers the consumers again, after the server was replaced, restarted or
// restored. The cache of completed keys has been flushed by the answer that showed it.
func (in *Inbox) serverChanged(ctx context.Context) error {
	err := in.consumers.again(ctx)
	kind := loglimit.Kind{Result: "server changed"}
	if in.logLimit.Pass(kind, func(int) {}) {
		in.config.Logger.Warn("millpond: the database server was replaced, restarted or set back, and may lack its last commits: "+
			"forgot which messages are completed, and registered the consumers again", slog.Any("error", err))
	}
	in.hooks.serverChanged(err)
	return err
}

// askFor sends a claim of no message.
func (in *Inbox) askFor(ctx context.Context, consumer stores.Consumer) error {
	attempt, _, err := in.store.Begin(ctx, stores.Claim{
		Key:   stores.Key{Consumer: consumer, ID: []byte("ready " + watermill.NewUUID())},
		Bound: in.config.ClaimTimeout,
	})
	if err != nil || attempt == nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	return attempt.Rollback(ctx) //nolint:wrapcheck // the caller wraps it
}
