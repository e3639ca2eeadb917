package adversary

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

func pgStore(t *testing.T) *postgres.Store {
	t.Helper()
	url := testenv.Postgres(t).NewDatabase(t)
	s, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func inbox(t *testing.T, s middleware.Store, f func(*middleware.InboxConfig)) *middleware.Inbox {
	t.Helper()
	c := middleware.InboxConfig{Service: "svc", Handler: "h", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if f != nil {
		f(&c)
	}
	in, err := middleware.NewInbox(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func msg(ctx context.Context, id string, d brokers.Delivery) *message.Message {
	m := message.NewMessage(id, []byte("payload of "+id))
	m.SetContext(brokers.WithDelivery(ctx, d))
	return m
}

func handle(f func(*message.Message) error) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) { return nil, f(m) }
}

func dump(t *testing.T, s stores.Inspector) {
	t.Helper()
	all, err := s.Messages(context.Background(), stores.MessageQuery{Filter: stores.Filter{Status: []stores.Status{3, 4, 5}}, Limit: 100})
	if err != nil {
		t.Log("dump:", err)
	}
	for _, m := range all {
		m, _ = s.Message(context.Background(), m.Number)
		t.Logf("row %q %s %s content=%s class=%s attempts=%d uncounted=%d presumed=%v due=%s payload=%q err=%.120q", m.Key.ID, m.Status, m.Placement, m.Content, m.Class, m.Attempts, m.Uncounted, m.Presumed, m.DueIn, m.Payload, m.Error)
	}
	q, _ := s.Quarantined(context.Background(), stores.QuarantineQuery{Limit: 100})
	for _, r := range q {
		t.Logf("quarantine %d %s %s id=%q", r.RowID, r.Reason, r.Status, r.ID)
	}
}

// T1: a handler whose statement runs into the HandlerTimeout is never counted.
func TestA1TimeoutInStatementIsCounted(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = 300*time.Millisecond, 5*time.Second
		c.Hold.Limit = 6 * time.Second
	})
	var runs atomic.Int32
	h := in.Middleware(handle(func(m *message.Message) error {
		runs.Add(1)
		tx, _ := postgres.TxFromContext(m.Context())
		_, err := tx.Exec(m.Context(), "SELECT pg_sleep(20)")
		return err
	}))
	begun := time.Now()
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Count: 1}))
	t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
	dump(t, s)
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times in one delivery", runs.Load())
	}
}

// T1b: goroutine left behind
func TestA1bBusyGoroutineIsCounted(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = 300*time.Millisecond, 2*time.Second
		c.Hold.Limit = 8 * time.Second
	})
	var runs atomic.Int32
	var wg sync.WaitGroup
	h := in.Middleware(handle(func(m *message.Message) error {
		runs.Add(1)
		tx, _ := postgres.TxFromContext(m.Context())
		started := make(chan struct{})
		wg.Go(func() { close(started); _, _ = tx.Exec(context.Background(), "SELECT pg_sleep(1)") })
		<-started
		time.Sleep(50 * time.Millisecond)
		return errors.New("boom")
	}))
	begun := time.Now()
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Count: 1}))
	t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
	wg.Wait()
	dump(t, s)
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times in one delivery", runs.Load())
	}
}

// T2: a healthy message with a long order key, delivered as suspect, can never run.
func TestA2LongOrderKey(t *testing.T) {
	s := pgStore(t)
	key := make([]byte, 4000)
	_, _ = rand.Read(key)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.Hold.Limit = 3 * time.Second
		c.Retry.OrderKey = middleware.OrderByKey
	})
	var runs atomic.Int32
	h := in.Middleware(handle(func(m *message.Message) error { runs.Add(1); return nil }))
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Suspect: true, Key: key}))
	t.Logf("suspect: err=%v runs=%d", err, runs.Load())
	if err != nil || runs.Load() != 1 {
		t.Error("a healthy message is not run")
	}
	h = in.Middleware(handle(func(m *message.Message) error { runs.Add(1); return errors.New("boom") }))
	_, err = h(msg(t.Context(), "b", brokers.Delivery{Count: 1, Key: key}))
	t.Logf("first, failing: err=%v", err)
	if err != nil {
		t.Error("a failure cannot be recorded")
	}
	dump(t, s)
}

// T3: redelivered placement, broker that redelivers at once.
func TestA3RedeliveredHotLoop(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.Retry.Placement = stores.PlacementRedelivered
		c.Logger = slog.New(slog.DiscardHandler)
	})
	h := in.Middleware(handle(func(m *message.Message) error {
		return middleware.RetryAfter(errors.New("rate limited"), 10*time.Minute)
	}))
	n := 0
	for begun := time.Now(); time.Since(begun) < 2*time.Second; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := h(msg(ctx, "a", brokers.Delivery{Count: n + 1}))
		cancel()
		if err == nil {
			break
		}
	}
	t.Logf("%d broker deliveries spent in 2 s", n)
	if n > 2 {
		t.Error("hot loop")
	}
	dump(t, s)
}

// T4: payload changed in place is parked as changed.
func TestA4PayloadInPlace(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, nil)
	h := in.Middleware(handle(func(m *message.Message) error {
		for i := range m.Payload {
			m.Payload[i] ^= 0x20
		}
		m.Metadata.Set("added", "by handler")
		return errors.New("boom")
	}))
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Count: 1}))
	dump(t, s)
	all, _ := s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	m, _ := s.Message(t.Context(), all[0].Number)
	if err != nil || string(m.Payload) != "payload of a" {
		t.Errorf("err=%v, acked, and what is kept is %q %v", err, m.Payload, m.Metadata)
	}
}

// T5: lost reply of the start record, MaxAttempts 1.
type lostReply struct {
	*postgres.Store
	n atomic.Int32
}

func (s *lostReply) Record(ctx context.Context, f stores.Failure) (int64, error) {
	v, err := s.Store.Record(ctx, f)
	if err == nil && f.Start && s.n.Add(1) == 1 {
		return 0, fmt.Errorf("%w: lost reply", stores.ErrUnavailable)
	}
	return v, err
}

func TestA5LostReplyOfStart(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, &lostReply{Store: s}, func(c *middleware.InboxConfig) {
		c.Retry.MaxAttempts = 1
		c.ClaimTimeout = 500 * time.Millisecond
		c.Hold.MaxPause = 200 * time.Millisecond
	})
	var runs atomic.Int32
	h := in.Middleware(handle(func(m *message.Message) error { runs.Add(1); return nil }))
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Suspect: true}))
	t.Logf("err=%v runs=%d", err, runs.Load())
	dump(t, s)
	if runs.Load() != 1 {
		t.Error("it never ran")
	}
}

// T6: conflicts of suspect deliveries are not repeated at once.
func TestA6SuspectConflict(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) { c.ClaimTimeout = 3 * time.Second })
	var runs atomic.Int32
	h := in.Middleware(handle(func(m *message.Message) error {
		if runs.Add(1) == 1 {
			return middleware.Conflicted(errors.New("conflict"))
		}
		return nil
	}))
	begun := time.Now()
	_, err := h(msg(t.Context(), "a", brokers.Delivery{Suspect: true}))
	t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
	if time.Since(begun) > 2*time.Second {
		t.Error("not at once")
	}
}

// T7: lock timeout is counted.
func TestA7LockTimeout(t *testing.T) {
	s := pgStore(t)
	if _, err := s.Pool().Exec(t.Context(), "CREATE TABLE x (id int primary key, v int); INSERT INTO x VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.Pool().BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE x SET v = 1"); err != nil {
		t.Fatal(err)
	}
	in := inbox(t, s, nil)
	var runs atomic.Int32
	h := in.Middleware(handle(func(m *message.Message) error {
		runs.Add(1)
		tx, _ := postgres.TxFromContext(m.Context())
		if _, err := tx.Exec(m.Context(), "SET LOCAL lock_timeout = '100ms'"); err != nil {
			return err
		}
		_, err := tx.Exec(m.Context(), "UPDATE x SET v = 2")
		return err
	}))
	_, err = h(msg(t.Context(), "a", brokers.Delivery{Count: 1}))
	_ = tx.Rollback(t.Context())
	t.Logf("err=%v runs=%d", err, runs.Load())
	dump(t, s)
	all, _ := s.Messages(t.Context(), stores.MessageQuery{Limit: 1})
	if len(all) == 1 && all[0].Attempts != 0 {
		t.Error("a lock timeout was counted")
	}
}

// T8: Keep.Off, order key, operator's retry: the key is wedged.
func TestA8RetryNotKeptWedgesOrderKey(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.Keep.Off = true
		c.Retry.OrderKey = middleware.OrderByKey
		c.Hold.Limit = 2 * time.Second
	})
	fail := in.Middleware(handle(func(m *message.Message) error { return middleware.Permanent(errors.New("boom")) }))
	_, err := fail(msg(t.Context(), "a", brokers.Delivery{Count: 1, Key: []byte("k")}))
	t.Log("a:", err)
	changed, err := s.Change(t.Context(), stores.Change{Verb: stores.VerbRetry, Limit: 10, Actor: "me"})
	t.Logf("%+v %v", changed, err)
	ok := in.Middleware(handle(func(m *message.Message) error { return nil }))
	for i := range 3 {
		_, err = ok(msg(t.Context(), "b", brokers.Delivery{Count: i + 1, Key: []byte("k")}))
		t.Log("b:", err)
	}
	dump(t, s)
	if err != nil {
		t.Error("a later healthy message of the key never runs; the broker will drop it")
	}
}

func warm(t *testing.T, s *postgres.Store) {
	t.Helper()
	var conns []interface{ Release() }
	for range 4 {
		c, err := s.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.Release()
	}
}

func TestB1WarmTimeout(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = 200*time.Millisecond, 5*time.Second
		c.Hold.Limit = 3 * time.Second
		c.Logger = slog.New(slog.DiscardHandler)
	})
	for i := range 15 {
		warm(t, s)
		var runs atomic.Int32
		h := in.Middleware(handle(func(m *message.Message) error {
			runs.Add(1)
			tx, _ := postgres.TxFromContext(m.Context())
			_, err := tx.Exec(m.Context(), "SELECT pg_sleep(20)")
			return err
		}))
		begun := time.Now()
		_, err := h(msg(t.Context(), fmt.Sprint(i), brokers.Delivery{Count: 1}))
		t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
		if runs.Load() != 1 {
			t.Errorf("the handler ran %d times in one delivery", runs.Load())
		}
	}
	dump(t, s)
}

func TestB1bBusy(t *testing.T) {
	s := pgStore(t)
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = 200*time.Millisecond, 5*time.Second
		c.Hold.Limit = 3 * time.Second
		c.Logger = slog.New(slog.DiscardHandler)
	})
	for i := range 10 {
		warm(t, s)
		var runs atomic.Int32
		h := in.Middleware(handle(func(m *message.Message) error {
			runs.Add(1)
			tx, _ := postgres.TxFromContext(m.Context())
			go func() { _, _ = tx.Exec(context.Background(), "SELECT pg_sleep(3)") }()
			time.Sleep(20 * time.Millisecond)
			return errors.New("boom")
		}))
		begun := time.Now()
		_, err := h(msg(t.Context(), fmt.Sprint(i), brokers.Delivery{Count: 1}))
		t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
		if runs.Load() != 1 {
			t.Errorf("the handler ran %d times in one delivery", runs.Load())
		}
	}
	dump(t, s)
}

func TestC0WarmTimeoutMany(t *testing.T) {
	url := testenv.Postgres(t).NewDatabase(t)
	sep := "?"
	for _, c := range url { if c == '?' { sep = "&" } }
	s, err := postgres.Open(t.Context(), url+sep+"pool_max_conns=24")
	if err != nil { t.Fatal(err) }
	defer s.Close()
	if _, err := s.Migrate(t.Context()); err != nil { t.Fatal(err) }
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = 200*time.Millisecond, 5*time.Second
		c.Hold.Limit = 4 * time.Second
		c.Logger = slog.New(slog.DiscardHandler)
	})
	for i := range 3 {
		var conns []interface{ Release() }
		for range 20 {
			c, err := s.Pool().Acquire(t.Context())
			if err != nil { t.Fatal(err) }
			conns = append(conns, c)
		}
		for _, c := range conns { c.Release() }
		var runs atomic.Int32
		h := in.Middleware(handle(func(m *message.Message) error {
			runs.Add(1)
			tx, _ := postgres.TxFromContext(m.Context())
			_, err := tx.Exec(m.Context(), "SELECT pg_sleep(20)")
			return err
		}))
		begun := time.Now()
		_, err := h(msg(t.Context(), fmt.Sprint(i), brokers.Delivery{Count: 1}))
		t.Logf("err=%v runs=%d took=%s", err, runs.Load(), time.Since(begun))
	}
	dump(t, s)
}

func park(t *testing.T, s *postgres.Store, id, order string) {
	t.Helper()
	c := stores.Consumer{Service: "svc", Handler: "h"}
	if err := s.Register(t.Context(), stores.Registration{Consumer: c}); err != nil { t.Fatal(err) }
	_, err := s.Record(t.Context(), stores.Failure{
		Key: stores.Key{Consumer: c, ID: []byte("u:" + id)}, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Attempts: 1, Class: stores.ClassTransient, Error: "x", Group: "g", Topic: "t",
		Content: &stores.Content{State: stores.ContentKept, UUID: id, Payload: []byte("payload of " + id)},
	})
	if err != nil { t.Fatal(err) }
}

// a retried message whose handler acks early
type failRecordOnce struct {
	*postgres.Store
	n atomic.Int32
	max int32
}

func (s *failRecordOnce) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if !f.Start && s.n.Add(1) <= s.max {
		return 0, fmt.Errorf("%w: a hiccup", stores.ErrUnavailable)
	}
	return s.Store.Record(ctx, f)
}

func retryEarlyAck(t *testing.T, hiccups int32) {
	s := pgStore(t)
	park(t, s, "a", "")
	var runs, done atomic.Int32
	in := inbox(t, &failRecordOnce{Store: s, max: hiccups}, func(c *middleware.InboxConfig) { c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)) })
	w, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{Handlers: map[string]message.HandlerFunc{"h": handle(func(m *message.Message) error {
		m.Ack()
		time.Sleep(100 * time.Millisecond)
		if runs.Add(1) == 1 {
			return errors.New("boom")
		}
		done.Add(1)
		return nil
	})}})
	if err != nil { t.Fatal(err) }
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	time.Sleep(4 * time.Second)
	t.Logf("runs=%d stats=%+v", runs.Load(), w.Stats())
	dump(t, s)
	q, _ := s.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 10})
	if len(q) > 0 {
		t.Error("it is in quarantine and pending, both: release it and let the reservation end, and it runs twice")
		if err := s.Decide(t.Context(), stores.Decision{Verb: stores.VerbRelease, RowID: q[0].RowID, Actor: "me"}); err != nil { t.Error(err) }
		// the reservation ends
		if _, err := s.Pool().Exec(t.Context(), "UPDATE millpond_failure SET due_at = now() WHERE reserved"); err != nil { t.Error(err) }
		time.Sleep(3 * time.Second)
		t.Logf("runs=%d successful=%d", runs.Load(), done.Load())
		dump(t, s)
	}
	cancel()
	t.Log(<-stopped)
}

func TestC1RetryEarlyAckRace(t *testing.T) { retryEarlyAck(t, 0) }
func TestC1bRetryEarlyAckDouble(t *testing.T) { retryEarlyAck(t, 1) }

type intakeHook struct{ paused, resumed atomic.Int32 }

func (h *intakeHook) IntakePaused(error)          { h.paused.Add(1) }
func (h *intakeHook) IntakeResumed(time.Duration) { h.resumed.Add(1) }

// a read-only server and suspect deliveries
func TestC2ReadOnlyFlaps(t *testing.T) {
	s := pgStore(t)
	park(t, s, "x", "")
	var db string
	_ = s.Pool().QueryRow(t.Context(), "SELECT current_database()").Scan(&db)
	if _, err := s.Pool().Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{db}.Sanitize()+" SET default_transaction_read_only = on"); err != nil { t.Fatal(err) }
	s.Pool().Reset()
	hook := &intakeHook{}
	in := inbox(t, s, func(c *middleware.InboxConfig) {
		c.Hold.Limit = 10 * time.Second
		c.Hooks = []middleware.Hook{hook}
		c.Logger = slog.New(slog.DiscardHandler)
	})
	// registering writes, too; pretend it was done before
	_, _ = s.Pool().Exec(t.Context(), "SET default_transaction_read_only = off")
	if err := in.Register(t.Context(), "h", ""); err != nil { t.Log("register:", err) }
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			h := in.Middleware(handle(func(m *message.Message) error { return nil }))
			_, err := h(msg(ctx, fmt.Sprint(i), brokers.Delivery{Suspect: true}))
			t.Log(err)
		})
	}
	wg.Wait()
	t.Logf("paused %d times, resumed %d times in 5 s", hook.paused.Load(), hook.resumed.Load())
	if hook.paused.Load() > 10 { t.Error("flaps") }
}

// Due whose answer is lost because the worker stops
func TestC3DueAtShutdown(t *testing.T) {
	s := pgStore(t)
	c := stores.Consumer{Service: "svc", Handler: "h"}
	lost := 0
	for i := range 40 {
		park(t, s, fmt.Sprint(i), "")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i*100)*time.Microsecond, cancel)
		batch, err := s.Due(ctx, stores.DueQuery{Consumer: c, Limit: 10, Reserve: time.Minute})
		if err == nil { _ = s.Release(t.Context(), batch) }
		cancel()
	}
	time.Sleep(200 * time.Millisecond)
	_ = s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM millpond_failure WHERE reserved").Scan(&lost)
	t.Logf("%d of 40 rows stay reserved", lost)
	if lost > 0 { t.Error("reserved by nobody") }
}
