package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A program whose handlers have all connections of its pool is told that, whatever it asks
// the store for, and not only that time has run out.
func TestExhaustedPoolIsNamed(t *testing.T) {
	t.Parallel()
	known := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	fresh, err := postgres.New(known.Pool(), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	held, err := known.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	claim := pgtest.Claim("id")
	for what, ask := range map[string]func(context.Context) error{
		"Register": func(ctx context.Context) error {
			return fresh.Register(ctx, stores.Registration{Consumer: pgtest.Stock, Topic: "orders"})
		},
		"Validate": func(ctx context.Context) error { return fresh.Validate(ctx) },
		"Migrate":  func(ctx context.Context) error { _, err := fresh.Migrate(ctx); return err },
		"Begin":    func(ctx context.Context) error { _, _, err := known.Begin(ctx, claim); return err },
		"Look":     func(ctx context.Context) error { _, err := known.Look(ctx, claim.Key, claim.Fingerprint); return err },
		"Resolve":  func(ctx context.Context) error { _, err := known.Resolve(ctx, claim.Key); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := ask(ctx)
		cancel()
		if !errors.Is(err, stores.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no connection of the pool became free in time, all 1 are in use") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
