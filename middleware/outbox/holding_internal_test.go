package outbox

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Relays that begin at once wait for each other in a row, and not in a circle, which the server
// would notice after its deadlock_timeout alone.
func TestRelaysThatBeginAtOnceDoNotDeadlock(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(testenv.VolatilePostgres(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	with := address.Query()
	with.Set("pool_max_conns", "16")
	with.Set("deadlock_timeout", "1min")
	address.RawQuery = with.Encode()
	store, err := postgres.Open(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	idle := func(int64) bool { return false }
	for range 5 {
		relays := make([]*holding, 8)
		var begun sync.WaitGroup
		for i := range relays {
			h := newHolding(store, time.Minute)
			h.self = int64(8 * i)
			relays[i] = h
			begun.Go(func() {
				if err := h.renew(ctx, idle, func(to func() bool) { to() }); err != nil {
					t.Error(err)
				}
			})
		}
		begun.Wait()
		for _, h := range relays {
			h.giveBack(ctx, idle)
		}
	}
}
