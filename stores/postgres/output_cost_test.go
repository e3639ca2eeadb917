package postgres_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// saying is withInbox of a handler that says something.
func saying(t *testing.T, s *postgres.Store, suspect bool, outputs ...stores.Output) {
	t.Helper()
	id := uuid.NewString()
	a, tx := begin(t, s, pgtest.Claim(id))
	var err error
	if suspect {
		var batch pgx.Batch
		batch.Queue(insertEffect, id)
		err = tx.SendBatch(t.Context(), &batch).Close()
	} else {
		_, err = tx.Exec(t.Context(), insertEffect, id)
	}
	if err == nil && len(outputs) > 0 {
		err = a.(stores.Emitter).Emit(outputs)
	}
	if err == nil {
		err = a.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func output(key string) stores.Output {
	o := stores.Output{ID: uuid.NewString(), Destination: "kafka", Topic: "shipments", Payload: make([]byte, 600)}
	if key != "" {
		o.OrderKey = []byte(key)
	}
	return o
}

func TestWhatAnOutputCosts(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	alone := pgtest.WarmedUp(t, proxy, func() { withInbox(t, s) })
	for name, cost := range map[string]func(){
		"one":                     func() { saying(t, s, false, output("")) },
		"one with an order key":   func() { saying(t, s, false, output("k")) },
		"three":                   func() { saying(t, s, false, output(""), output("k"), output("l")) },
		"one of an unwatched one": func() { saying(t, s, true, output("k")) },
	} {
		if said := pgtest.WarmedUp(t, proxy, cost); said.RoundTrips != alone.RoundTrips || said.Commits != 1 || said.Rollbacks != 0 {
			t.Errorf("%s: %+v, without: %+v", name, said, alone)
		}
	}
	rolledBack := pgtest.WarmedUp(t, proxy, func() {
		a, _ := begin(t, s, pgtest.Claim("rolled back"))
		if err := a.(stores.Emitter).Emit([]stores.Output{output("k")}); err != nil {
			t.Fatal(err)
		}
		if err := a.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if rolledBack.RoundTrips != 2 || rolledBack.Commits != 0 {
		t.Errorf("rolled back: %+v", rolledBack)
	}
}

func TestWriteAheadLogOfAnOutput(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, quietServer(t), "pool_max_conns", "1"))
	const messages = 500
	measure := func(f func()) int64 {
		f()
		before, _ := walAndSequences(t, s.Pool())
		for range messages {
			f()
		}
		after, _ := walAndSequences(t, s.Pool())
		return (after - before) / messages
	}
	alone := measure(func() { saying(t, s, false) })
	n, content := 0, int64(0)
	said := measure(func() {
		n++
		o := output(fmt.Sprint("k", n%50))
		content = int64(len(o.ID) + len(o.Destination) + len(o.Topic) + len(o.Payload) + len(o.OrderKey))
		saying(t, s, false, o)
	})
	t.Logf("WAL a message: %d B, with an output of %d B %d B (+%d B)", alone, content, said, said-alone)
	if said-alone > content+250 {
		t.Errorf("an output writes %d B beside its content, at most 250 are allowed", said-alone-content)
	}
}
