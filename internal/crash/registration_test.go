package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// TestConsumersOutliveTheServer: stores that have registered a consumer count under the
// same id as all others, also if the server crashes at once. MariaDB lets others read what
// is committed before it is on the disk.
func TestConsumersOutliveTheServer(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t)
	databaseURL := server.NewDatabase(t)
	open := func() *mysql.Store {
		store, err := untilUp(t.Context(), func() (*mysql.Store, error) { return mysql.Open(t.Context(), databaseURL) })
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	at := make([]*mysql.Store, 8)
	for i := range at {
		at[i] = open()
		defer at[i].Close()
	}
	if _, err := at[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	crashes := 3
	if rotation.Kills(t) > 0 {
		crashes = 20
	}
	for crash := range crashes {
		last := crashWhileRegistering(t, server, at, crash)
		fresh := open()
		for i, consumer := range last {
			if consumer == (stores.Consumer{}) {
				continue // it was not fast enough
			}
			id := fmt.Append(nil, "u:", i)
			deliver(t, at[i], consumer, id)
			if err := registerWhenUp(t.Context(), fresh, consumer); err != nil {
				t.Fatal(err)
			}
			if got := deliver(t, fresh, consumer, id); got != stores.Duplicate {
				t.Errorf("crash %d: a completed message of %s is %s to another store: the first counts under an id that was lost", crash, consumer, got)
			}
		}
		if err := fresh.Close(); err != nil {
			t.Error(err)
		}
	}
}

// crashWhileRegistering has all stores register the same consumers, one after the other,
// and kills the server meanwhile. It returns what each has registered last, when the
// server is up again.
func crashWhileRegistering(t *testing.T, server *testenv.PrivateMySQLServer, at []*mysql.Store, crash int) []stores.Consumer {
	t.Helper()
	last := make([]stores.Consumer, len(at))
	up, down := context.WithCancel(t.Context())
	defer down()
	var beside sync.WaitGroup
	for i, store := range at {
		beside.Go(func() {
			for n := 0; up.Err() == nil; n++ {
				consumer := stores.Consumer{Service: service, Handler: fmt.Sprintf("%d.%d", crash, n)}
				if registerWhenUp(up, store, consumer) == nil {
					last[i] = consumer
				}
			}
		})
	}
	pause.Sleep(t.Context(), 300*time.Millisecond)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	down()
	beside.Wait()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return last
}

// registerWhenUp tries until the server is there.
func registerWhenUp(ctx context.Context, s *mysql.Store, c stores.Consumer) error {
	for {
		err := s.Register(ctx, stores.Registration{Consumer: c, Topic: topic})
		if !errors.Is(err, stores.ErrUnavailable) || !pause.Sleep(ctx, openAgain) {
			return err
		}
	}
}

// deliver completes a message, or returns why it need not.
func deliver(t *testing.T, s *mysql.Store, c stores.Consumer, id []byte) stores.Outcome {
	t.Helper()
	for {
		attempt, verdict, err := s.Begin(t.Context(), stores.Claim{Key: stores.Key{Consumer: c, ID: id}})
		if errors.Is(err, stores.ErrUnavailable) && pause.Sleep(t.Context(), openAgain) {
			continue
		}
		if err == nil && attempt != nil {
			err = attempt.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return verdict.Outcome
	}
}
