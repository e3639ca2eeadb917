package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/router"
)

// seen is what a handler can read of a message.
type seen struct {
	facts   brokers.Delivery
	payload []byte
	uuid    string
}

func seenOf(m *message.Message) (s seen) {
	s.facts, _ = brokers.DeliveryOf(m)
	s.facts.Count, s.facts.Suspect = 0, false // of one delivery alone
	s.payload, s.uuid = m.Payload, m.UUID
	return s
}

// witness keeps what was seen of messages, by their coordinates.
type witness struct {
	mu    sync.Mutex
	first map[string]seen   // by the subscriber's first delivery
	runs  map[string][]seen // by the handler
}

func (w *witness) delivered(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		s := seenOf(m)
		s.payload = bytes.Clone(s.payload)
		w.mu.Lock()
		if _, again := w.first[s.facts.Coordinates]; !again {
			w.first[s.facts.Coordinates] = s
		}
		w.mu.Unlock()
		return h(m)
	}
}

// handle fails the first two attempts.
func (w *witness) handle(m *message.Message) error {
	s := seenOf(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[s.facts.Coordinates] = append(w.runs[s.facts.Coordinates], s)
	if len(w.runs[s.facts.Coordinates]) < 3 {
		return errors.New("not yet")
	}
	return nil
}

// completed reports whether n messages have had their third run.
func (w *witness) completed(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := 0
	for _, runs := range w.runs {
		if len(runs) == 3 {
			done++
		}
	}
	return done == n
}

// A keyed record and a keyed tombstone of Kafka whose attempts fail, or that are released
// from quarantine, are on each attempt what they were on the first delivery, and the command
// shows what that was.
func TestFactsOfARecordOnEveryAttempt(t *testing.T) {
	servers := map[string]func(t *testing.T) string{
		"postgres+sql": func(t *testing.T) string { return strings.Replace(postgresURL(t), "postgres", "postgres+sql", 1) },
		"mariadb":      func(t *testing.T) string { return testenv.MariaDB(t).NewDatabase(t) },
		"mysql":        func(t *testing.T) string { return testenv.MySQL(t).NewDatabase(t) },
		"sqlite": func(t *testing.T) string {
			return "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "facts.db"))
		},
	}
	names := append(rotation.Turn(t, 1, "mariadb", "mysql", "postgres+sql", "sqlite"), "postgres")
	servers["postgres"] = postgresURL
	for _, name := range names {
		t.Run(name, func(t *testing.T) { factsOf(t, servers[name](t)) })
	}
}

func factsOf(t *testing.T, storeURL string) {
	addresses, topic := testenv.Kafka(t), "facts-"+uuid.NewString()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, topic)
	require.NoError(t, err)
	const records = 10
	for i := range records {
		record := &kgo.Record{Topic: topic, Key: fmt.Append(nil, "customer-", i), Timestamp: time.UnixMilli(1_700_000_000_123 + int64(i))}
		switch i % 5 {
		case 0:
			record.Value = []byte(`{"n":1}`)
		case 1: // a tombstone
		case 2:
			record.Key, record.Value = []byte{}, []byte{}
		case 3:
			record.Key, record.Value = nil, []byte("no key")
		case 4:
			record.Key = []byte("\x00\xff")
		}
		if i < records/2 { // the others have no id, and go to quarantine
			record.Headers = []kgo.RecordHeader{{Key: "_watermill_message_uuid", Value: []byte(uuid.NewString())}}
		}
		require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
	}
	w := newWorld(t, storeURL)
	wit := &witness{first: make(map[string]seen), runs: make(map[string][]seen)}
	stop := serveFacts(t, fmt.Sprintf(`
service: billing
broker: {url: "kafka://%s/?time=producer", group: %q}
store: {url: %q}
retry: {max_attempts: 2, backoff_min: 10ms}
retry_worker: {poll_interval: 50ms}
`, strings.Join(addresses, ","), uuid.NewString(), storeURL), topic, wit)
	defer stop()
	retried := func(n int) {
		t.Helper()
		failed := []string{"msg", "ls", "--status", "failed", "--consumer", "billing"}
		w.reaches(records/2, failed...)
		for _, m := range w.objects(failed...) {
			wit.shown(t, w, "msg", "show", itoa(m["number"]))
		}
		w.ok("msg", "retry", "--all", "--yes")
		testenv.Eventually(t, "all have had their third run", func() bool { return wit.completed(n) })
	}
	retried(records / 2)
	held := []string{"quarantine", "ls", "--consumer", "billing"}
	w.reaches(records/2, held...)
	for _, row := range w.objects(held...) {
		number := itoa(row["row"])
		wit.shown(t, w, "quarantine", "show", number)
		w.ok("quarantine", "release", number)
	}
	retried(records)
	stop()
	keys := make(map[string]bool)
	for at, runs := range wit.runs {
		first := wit.first[at]
		keys[fmt.Sprintf("%q %t", first.facts.Key, first.facts.Key == nil)] = true
		require.False(t, first.facts.Time.IsZero())
		for n, run := range runs {
			require.True(t, run.facts.Time.Equal(first.facts.Time), "%s, attempt %d: %v, delivered at %v", at, n, run.facts.Time, first.facts.Time)
			run.facts.Time = first.facts.Time
			require.Equal(t, first, run, "%s, attempt %d", at, n) // nil is not empty
		}
	}
	require.Len(t, keys, 4+3, "all keys were told apart: %v", keys)
}

// reaches waits until a list has so many rows.
func (w *world) reaches(n int, args ...string) {
	w.t.Helper()
	testenv.Eventually(w.t, fmt.Sprintf("%v has %d rows", args, n), func() bool {
		return strings.Count(w.ok(append(args, "-o", "jsonl")...), "\n") == n
	})
}

// serveFacts runs a service until stop is called.
func serveFacts(t *testing.T, file, topic string, wit *witness) (stop func()) {
	c, err := router.ReadConfig(fstest.MapFS{"service.yaml": {Data: []byte(file)}}, "service.yaml", nil)
	require.NoError(t, err)
	c.Program = router.Program{Logger: slog.New(slog.DiscardHandler), NoSignals: true}
	svc, err := router.New(t.Context(), c)
	require.NoError(t, err)
	svc.Use(wit.delivered)
	svc.Handle("facts", topic, wit.handle)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, svc.Close())
	})
}

// shown compares what the command shows of a message with its first delivery.
func (w *witness) shown(t *testing.T, on *world, args ...string) {
	t.Helper()
	record, table := on.object(exitOK, args...), on.ok(args...)
	w.mu.Lock()
	first, known := w.first[fmt.Sprint(record["coordinates"])]
	w.mu.Unlock()
	require.True(t, known, record)
	require.Equal(t, first.facts.Topic, record["topic"])
	require.Equal(t, first.facts.Time.UTC().Format(time.RFC3339Nano), record["broker_time"])
	require.Contains(t, table, "broker's time ")
	require.Equal(t, first.payload == nil, record["payload_nil"] == true)
	require.Equal(t, first.payload == nil, strings.Contains(table, "nil, as of a tombstone"), table)
	switch key := first.facts.Key; {
	case key == nil:
		require.NotContains(t, record, "key")
		require.NotRegexp(t, `(?m)^key `, table)
	case len(key) == 0:
		require.Empty(t, record["key"])
		require.Regexp(t, `(?m)^key +\(empty\)$`, table)
	case key[0] == 0:
		require.Equal(t, map[string]any{"base64": "AP8="}, record["key"])
	default:
		require.Equal(t, string(key), record["key"])
		require.Regexp(t, `(?m)^key +`+string(key)+`$`, table)
	}
}
