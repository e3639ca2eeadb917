package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// heldHook tells when a delivery is about to wait.
type heldHook chan struct{}

func (h heldHook) Hold(context.Context, error, time.Duration) { h <- struct{}{} }

func TestOnlyTheRunningDeliveryHoldsAConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "8"))
	const deliveries = 64
	held := make(heldHook, 10*deliveries)
	in, err := middleware.NewInbox(s, middleware.InboxConfig{
		Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler,
		Hold:   middleware.HoldConfig{MinPause: 4 * time.Second, MaxPause: 4 * time.Second, Max: deliveries},
		Hooks:  []middleware.Hook{held},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	finish := make(chan struct{})
	h := in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, postgres.Handler(func(ctx context.Context, tx pgx.Tx, _ *message.Message) error {
			<-finish
			_, err := tx.Exec(ctx, insertEffect, "one")
			return err
		})(msg)
	})
	var all sync.WaitGroup
	for range deliveries {
		all.Go(func() {
			if _, err := h(message.NewMessage("one", []byte("one"))); err != nil {
				t.Error(err)
			}
		})
	}
	for range deliveries - 1 {
		<-held
	}
	if n := s.Pool().Stat().AcquiredConns(); n != 1 {
		t.Errorf("%d connections are held while one delivery runs and %d wait", n, deliveries-1)
	}
	close(finish)
	all.Wait()
	if n := effects(t, s.Pool()); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Handlers that need a second connection must not be starved by claims for ever.
func TestPoolOfOneServesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	in, err := middleware.NewInbox(s, middleware.InboxConfig{
		Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
			_, err := tx.Exec(ctx, insertEffect, msg.UUID)
			return err
		})(msg)
	})
	const messages, copies = 20, 5
	var all sync.WaitGroup
	for i := range messages * copies {
		all.Go(func() {
			if _, err := h(message.NewMessage(fmt.Sprint(i%messages), nil)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := effects(t, s.Pool()); n != messages {
		t.Errorf("%d effects, want %d", n, messages)
	}
}
