package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// poisonEnv tells a process which service it is: meal, as JSON.
const poisonEnv = "MILLPOND_POISON_SETUP"

// meal is a topic with a message that kills whoever handles it.
type meal struct {
	setup

	Silent bool // the subscriber says nothing about deliveries
	Budget int
	Broken string // the rule that is broken; "": none
}

// What becomes of suspicion on a silent subscriber if a rule is broken.
const (
	neverSuspect = "nothing is suspect"
	firstSuspect = "the first deliveries of a process are suspect" // as many as it has in flight
)

const (
	poison = "poison"

	mealMessages = 200
	mealHopeless = 5 // of them always fail, near the poison
)

// TestPoison has processes that one message kills, each time, with others in flight: it
// fails within its budget and one process more, and none of the others loses an attempt.
func TestPoison(t *testing.T) {
	type course struct {
		kind     string
		inFlight int
		silent   bool
	}
	courses := make(map[string]course)
	for _, n := range []int{1, 16, 64} {
		for kind := range maps.Keys(kinds) {
			courses[fmt.Sprintf("%s/%d in flight", kind, n)] = course{kind, n, false}
		}
		courses[fmt.Sprintf("silent/%d in flight", n)] = course{"nats", n, true}
	}
	for _, name := range rotation.Turn(t, 2, slices.Sorted(maps.Keys(courses))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := courses[name]
			m := &meal{setup: setup{Kind: c.kind, InFlight: c.inFlight, Commit: 5 * time.Second}, Silent: c.silent, Budget: 2}
			kinds[c.kind].vary(0, false, &m.setup)
			for _, wrong := range m.eaten(t, newPostgres(t)) {
				t.Error(wrong)
			}
		})
	}
}

// TestPoisonFindsBrokenRules: what suspicion by time prevents.
func TestPoisonFindsBrokenRules(t *testing.T) {
	t.Parallel()
	for _, broken := range rotation.Turn(t, 1, neverSuspect, firstSuspect) {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			m := &meal{setup: setup{Kind: "nats", InFlight: 16}, Silent: true, Budget: 2, Broken: broken}
			kinds["nats"].vary(0, false, &m.setup)
			if wrong := m.eaten(t, newPostgres(t)); len(wrong) == 0 {
				t.Error("nothing is wrong")
			} else {
				t.Log(wrong)
			}
		})
	}
}

// eaten runs processes until everything is settled or too many were killed, and returns what
// is wrong then.
func (m *meal) eaten(t *testing.T, database *database) (wrong []string) {
	t.Helper()
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	server := kinds[m.Kind].start(t, m.setup)
	m.Dir, m.URL, m.Broker = t.ArtifactDir(), database.url, server.address()
	hopeful := m.publish(t, server)
	settled := func() bool {
		var n int
		err := database.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_inbox WHERE status IN (2, 4)").Scan(&n)
		return err == nil && n == mealMessages
	}
	deadline := time.Now().Add(3 * time.Minute)
	killed := 0
	begun := time.Now()
	for !settled() && time.Now().Before(deadline) && killed <= m.Budget+1 {
		if m.serveUntil(t, deadline, settled) {
			killed++
			t.Logf("a process was killed after %s", time.Since(begun).Round(time.Millisecond))
		}
	}
	t.Logf("at rest after %s and %d killed processes, with a budget of %d", time.Since(begun).Round(time.Millisecond), killed, m.Budget)
	if killed != m.Budget && killed != m.Budget+1 { // the first one may have counted, too
		complain("%d processes were killed, with a budget of %d", killed, m.Budget)
	}
	a := &audit{rows: make(map[string]stores.Status), effects: make(map[string][]effect), quarantined: make(map[string]bool)}
	a.read(t, database.admin)
	if a.rows[poison] != stores.StatusFailed {
		complain("the poison is %s", a.rows[poison])
	}
	for _, id := range hopeful {
		if a.rows[id] != stores.StatusCompleted {
			complain("%s, which was near, is %s", id, a.rows[id])
		}
	}
	for i := range mealHopeless {
		id := fmt.Sprintf("%d-%s", i, hopeless)
		if runs, _ := os.ReadFile(m.returned(id)); len(runs) < m.Budget {
			complain("%s, which was near, has failed after %d of %d attempts", id, len(runs), m.Budget)
		}
	}
	return wrong
}

// publish publishes the poison in the middle of the others, and returns the ids of those
// that are to be completed.
func (m *meal) publish(t *testing.T, server server) (hopeful []string) {
	t.Helper()
	client, err := server.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher, err := client.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	for i := range mealMessages {
		id := fmt.Sprintf("%d-%s", i, honest)
		switch before := mealMessages/2 - i; {
		case before == 0:
			id = poison
		case before > 0 && before <= mealHopeless:
			id = fmt.Sprintf("%d-%s", before-1, hopeless)
		default:
			hopeful = append(hopeful, id)
		}
		if err := publisher.Publish(topic, message.NewMessage(id, []byte("order "+id))); err != nil {
			t.Fatal(err)
		}
	}
	return hopeful
}

// serveUntil runs a process until everything is settled. It reports whether it was killed.
func (m *meal) serveUntil(t *testing.T, deadline time.Time, settled func() bool) (killed bool) {
	t.Helper()
	told, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := fleet.Self()(0)
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Env = append(cmd.Environ(), poisonEnv+"="+string(told), "GORACE=atexit_sleep_ms=0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err = <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL { //nolint:forcetypeassert // on every Unix
				return true
			}
			if err != nil || strings.Contains(log.String(), "WARNING: DATA RACE") {
				t.Fatalf("%v: %s", err, head(log.String(), 8000))
			}
			return false
		case <-time.After(100 * time.Millisecond):
			if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				err = <-ended
				t.Fatalf("not everything has come to rest in time: %v, %s", err, head(log.String(), 8000))
			}
			if settled() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}
}

func (m *meal) returned(id string) string { return filepath.Join(m.Dir, "returned-"+id) }

// eat is the service in a process of its own.
func eat(told string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	m := &meal{}
	err := json.Unmarshal([]byte(told), m)
	if err == nil {
		err = m.serve(ctx)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, workerFailure+err.Error())
		return 1
	}
	return 0
}

func (m *meal) serve(ctx context.Context) error {
	store, handler, err := openStore(ctx, m.URL)
	if err != nil {
		return err
	}
	defer store.Close()
	broker, err := kinds[m.Kind].open(ctx, m.setup, nil)
	if err != nil {
		return err
	}
	defer broker.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	inbox, err := middleware.NewInbox(m.broken(impatient{store, false}), middleware.InboxConfig{
		Service: service, ClaimTimeout: 2 * time.Second, Hold: (&shop{}).hold(), Logger: log,
		Retry: middleware.RetryPolicy{MaxAttempts: m.Budget, Backoff: middleware.BackoffConfig{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}},
	})
	if err != nil {
		return err
	}
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: group, InFlight: m.InFlight, Logger: watermill.NewSlogLogger(log)})
	if err != nil {
		return err
	}
	if m.Silent {
		subscriber = &silent{Subscriber: subscriber}
		if m.Broken == firstSuspect {
			subscriber.(*silent).suspect.Store(int64(m.InFlight)) //nolint:forcetypeassert // it is made here
		}
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddConsumerHandler(consumer, topic, subscriber, handler(m.handle)).AddMiddleware(inbox.Middleware)
	retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{
		Handlers: router.Handlers(), Concurrency: 3, PollInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- retries.Run(ctx) }()
	return errors.Join(router.Run(ctx), <-stopped)
}

// broken breaks the rule that is to be broken.
func (m *meal) broken(s impatient) stores.Store {
	if m.Broken == "" {
		return s
	}
	return alone{s}
}

// alone never hears of other processes.
type alone struct{ impatient }

func (s alone) Attend(ctx context.Context, c stores.Consumer, process string) ([]stores.Attendant, error) {
	_, err := s.impatient.Attend(ctx, c, process)
	return nil, err
}

// handle works for a while, so that others run beside the poison.
func (m *meal) handle(ctx context.Context, exec transaction, msg *message.Message) error {
	if err := exec(ctx, "INSERT INTO effect VALUES ($1, 1, '')", msg.UUID); err != nil {
		return err
	}
	work := 10 * time.Millisecond
	if conductOf(msg.UUID) == hopeless {
		work = 300 * time.Millisecond // so that the poison kills it, too
	}
	pause.Sleep(ctx, work)
	switch {
	case msg.UUID == poison:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case conductOf(msg.UUID) == hopeless:
		file, err := os.OpenFile(m.returned(msg.UUID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		if _, err := file.WriteString("."); err != nil {
			return err
		}
		return errHopeless
	}
	return nil
}

// silent is a subscriber that says nothing about deliveries, but that so many are suspect.
type silent struct {
	message.Subscriber

	suspect atomic.Int64
}

// Subscribe implements message.Subscriber.
func (s *silent) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	from, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	to := make(chan *message.Message)
	go func() {
		defer close(to)
		for msg := range from {
			bare := message.NewMessage(msg.UUID, msg.Payload)
			bare.SetContext(ctx)
			if s.suspect.Add(-1) >= 0 {
				bare.SetContext(brokers.WithDelivery(ctx, bare, brokers.Delivery{Suspect: true}))
			}
			go func() {
				select {
				case <-bare.Acked():
					msg.Ack()
				case <-bare.Nacked():
					msg.Nack()
				}
			}()
			to <- bare
		}
	}()
	return to, nil
}
