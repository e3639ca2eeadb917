package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// pokes counts what a relay is told.
type pokes struct{ n atomic.Int32 }

func (p *pokes) Poke(...int64) { p.n.Add(1) }

// speaker is a service whose handler publishes.
type speaker struct {
	t     *testing.T
	store *sqlite.Store
	poked *pokes
}

func newSpeaker(t *testing.T) *speaker {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "speaker.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &speaker{t: t, store: store, poked: &pokes{}}
}

func (s *speaker) inbox(configure ...func(*middleware.InboxConfig)) *middleware.Inbox {
	return newInbox(s.t, s.store, append([]func(*middleware.InboxConfig){func(c *middleware.InboxConfig) {
		c.Handler, c.Outputs = "", &middleware.Outputs{Relay: s.poked}
		c.Retry.Backoff.Min = time.Millisecond
	}}, configure...)...)
}

// run delivers a message to a handler of a router until the store knows it.
func (s *speaker) run(in *middleware.Inbox, publisher message.Publisher, msg *message.Message, h message.HandlerFunc, around ...message.HandlerMiddleware) {
	s.t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		s.t.Fatal(err)
	}
	router.AddMiddleware(around...)
	router.AddMiddleware(in.Middleware)
	router.AddHandler("stock", "orders", pubsub, "shipments", publisher, h)
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	if err := pubsub.Publish("orders", msg); err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, "settled", func() bool { return s.settled(msg) })
	if err := router.Close(); err != nil {
		s.t.Error(err)
	}
}

// settled reports whether the store knows the message.
func (s *speaker) settled(msg *message.Message) bool {
	v, err := s.store.Look(s.t.Context(), stores.Key{Consumer: stores.Consumer{Service: "inventory", Handler: "stock"}, ID: []byte("u:" + msg.UUID)}, stores.Fingerprint{})
	return err == nil && v.Outcome != stores.Claimable
}

func (s *speaker) said() []stores.PendingOutput {
	s.t.Helper()
	q := stores.PendingQuery{Limit: 100, Bytes: 1 << 30}
	for i := range int64(stores.OutboxBuckets) {
		q.Buckets = append(q.Buckets, i)
	}
	p, err := s.store.Pending(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	return p.Outputs
}

func (s *speaker) ids() string {
	s.t.Helper()
	var ids []string
	for _, o := range s.said() {
		ids = append(ids, fmt.Sprintf("%s→%s/%s", o.ID, o.Destination, o.Topic))
	}
	return strings.Join(ids, " ")
}

func (s *speaker) class(msg *message.Message) stores.Class {
	v, _ := s.store.Look(s.t.Context(), stores.Key{Consumer: stores.Consumer{Service: "inventory", Handler: "stock"}, ID: []byte("u:" + msg.UUID)}, stores.Fingerprint{})
	return v.Failure.Class
}

func returns(messages ...*message.Message) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return messages, nil }
}

func TestWhatAHandlerSaysIsCommittedWithIt(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	msg := message.NewMessage("order", []byte("{}"))
	msg.Metadata.Set(watermillmiddleware.CorrelationIDMetadataKey, "c")
	msg.Metadata.Set("traceparent", trace)
	msg.Metadata.Set("tracestate", "a=b")
	bus := outbox.Publisher("mails")
	for range 2 {
		s.run(s.inbox(), outbox.Publisher("kafka-eu"), msg.Copy(), func(m *message.Message) ([]*message.Message, error) {
			returned := message.NewMessage("shipped", []byte("x"))
			returned.Metadata.Set(middleware.MetadataCausationID, "own")
			mail := message.NewMessageWithContext(m.Context(), "mail", []byte("changed later"))
			if err := bus.Publish("mail", mail); err != nil {
				return nil, err
			}
			copy(mail.Payload, "CHANGED")
			mail.Metadata.Set("more", "later")
			return []*message.Message{returned, message.NewMessage("", nil)}, nil
		}, watermillmiddleware.CorrelationID)
	}
	outputs := s.said()
	if len(outputs) != 3 || !strings.HasPrefix(s.ids(), "mail→mails/mail shipped→kafka-eu/shipments ") {
		t.Fatalf("said: %s", s.ids())
	}
	for i, o := range outputs {
		want := map[string]string{"correlation_id": "c", "causation_id": "order", "traceparent": trace, "tracestate": "a=b"}
		if i == 1 {
			want["causation_id"] = "own"
		}
		if fmt.Sprint(o.Metadata) != fmt.Sprint(want) || o.TraceParent.String() != trace {
			t.Errorf("%s: %v and %s, want %v", o.ID, o.Metadata, o.TraceParent, want)
		}
	}
	if string(outputs[0].Payload) != "changed later" {
		t.Errorf("%q was published", outputs[0].Payload)
	}
	if n := s.poked.n.Load(); n != 1 {
		t.Errorf("the relay was poked %d times", n)
	}
}

// Behind a forwarder.Publisher of Watermill the envelope is taken off when the output is
// captured: it goes where its message goes.
func TestEnvelopesAreTakenOffAtCapture(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	bus := forwarder.NewPublisher(outbox.Forwarder{}.Publisher(outbox.Publisher("mails")), forwarder.PublisherConfig{})
	in := s.inbox(func(c *middleware.InboxConfig) {
		c.Outputs.Destinations = map[string]middleware.Destination{"mails": {Topics: []string{"welcome"}}}
	})
	var refused error
	s.run(in, outbox.Publisher("mails"), message.NewMessage("order", []byte("{}")), func(m *message.Message) ([]*message.Message, error) {
		refused = bus.Publish("elsewhere", message.NewMessageWithContext(m.Context(), "no", nil))
		return nil, bus.Publish("welcome", message.NewMessageWithContext(m.Context(), "mail", []byte("x")))
	})
	if !errors.Is(refused, middleware.ErrUnknownTopic) || s.ids() != "mail→mails/welcome" {
		t.Errorf("refused: %v, said: %s", refused, s.ids())
	}
}

func TestWhatAFailedRunSaysIsLost(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	for id, h := range map[string]func(*message.Message) error{
		"error": func(*message.Message) error { return middleware.Permanent(errors.New("boom")) },
		"panic": func(*message.Message) error { panic("boom") },
	} {
		s.run(s.inbox(func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 }), outbox.Publisher(""), message.NewMessage(id, nil), func(m *message.Message) ([]*message.Message, error) {
			if err := outbox.Publisher("").Publish("t", message.NewMessageWithContext(m.Context(), "x", nil)); err != nil {
				t.Error(err)
			}
			return []*message.Message{message.NewMessage("y", nil)}, h(m)
		})
	}
	if said := s.ids(); said != "" || s.poked.n.Load() != 0 {
		t.Errorf("said: %s, poked %d times", said, s.poked.n.Load())
	}
}

func TestWhatCannotBeSaidFailsForGood(t *testing.T) {
	t.Parallel()
	large := message.NewMessage("large", make([]byte, 100))
	for name, test := range map[string]struct {
		publisher message.Publisher
		outputs   *middleware.Outputs
		handler   message.HandlerFunc
		want      error
		text      string
	}{
		"no outputs":          {outbox.Publisher("a"), nil, returns(message.NewMessage("x", nil)), middleware.ErrOutputs, "set InboxConfig.Outputs"},
		"a foreign publisher": {nothing{}, &middleware.Outputs{}, returns(message.NewMessage("x", nil)), middleware.ErrOutputs, `"middleware_test.nothing": use outbox.Publisher`},
		"nil":                 {outbox.Publisher("a"), &middleware.Outputs{}, returns(nil), stores.ErrInvalidOutput, "is nil"},
		"unknown":             {outbox.Publisher("b"), &middleware.Outputs{Destinations: map[string]middleware.Destination{"a": {}}}, returns(large), middleware.ErrUnknownDestination, `"b"`},
		"too large":           {outbox.Publisher("a"), &middleware.Outputs{Destinations: map[string]middleware.Destination{"a": {MaxBytes: 99}}}, returns(large), middleware.ErrOutputTooLarge, "takes 99"},
		"no topic": {outbox.Publisher("a"), &middleware.Outputs{}, func(m *message.Message) ([]*message.Message, error) {
			return nil, outbox.Publisher("a").Publish("", message.NewMessageWithContext(m.Context(), "x", nil))
		}, stores.ErrInvalidOutput, "topic is empty"},
		"a long id": {outbox.Publisher("a"), &middleware.Outputs{}, returns(message.NewMessage(strings.Repeat("i", stores.MaxIDBytes+1), nil)), stores.ErrInvalidOutput, "message id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, told := newSpeaker(t), &lastEnd{}
			in := s.inbox(func(c *middleware.InboxConfig) { c.Outputs, c.Hooks = test.outputs, []middleware.Hook{told} })
			msg := message.NewMessage("m", nil)
			s.run(in, test.publisher, msg, test.handler)
			if err := told.err(); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want %v with %q", err, test.want, test.text)
			}
			if got := s.class(msg); got != stores.ClassOutputs || s.ids() != "" {
				t.Errorf("class %s, said %q", got, s.ids())
			}
		})
	}
}

type nothing struct{}

func (nothing) Publish(string, ...*message.Message) error { return nil }
func (nothing) Close() error                              { return nil }

type lastEnd struct {
	mu   sync.Mutex
	last middleware.DeliveryEnd
}

func (l *lastEnd) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = d
}

func (l *lastEnd) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Err
}

func TestIDsOfOutputs(t *testing.T) {
	t.Parallel()
	run := func(ids middleware.OutputIDs, messages ...*message.Message) *speaker {
		s := newSpeaker(t)
		in := s.inbox(func(c *middleware.InboxConfig) {
			c.Outputs.IDs = ids
			c.Outputs.OrderKey = func(o stores.Output) []byte { return []byte(o.Metadata["key"]) }
		})
		s.run(in, outbox.Publisher("a"), order(), returns(messages...))
		return s
	}
	keyed := func(id, key string) *message.Message {
		m := message.NewMessage(id, nil)
		m.Metadata.Set("key", key)
		return m
	}
	one := run(middleware.OutputIDsOwn, keyed("", "k"), keyed("own", "k"), keyed("", "l"), keyed("", "k"))
	two := run(middleware.OutputIDsDerived, keyed("x", "l"), keyed("y", "k"), keyed("z", "k"), keyed("", "k"))
	a, b := one.said(), two.said()
	if a[1].ID != "own" || a[0].ID != b[1].ID || a[2].ID != b[0].ID || a[3].ID != b[3].ID || b[0].Metadata[middleware.MetadataOutputID] != "x" {
		t.Errorf("the ids are\n%s\n%s", one.ids(), two.ids())
	}
	if want := "b4323948-0d92-8462-bcc1-d8d4ca626bfa"; a[0].ID != want {
		t.Errorf("the id is %s, want %s, which no version may change", a[0].ID, want)
	}
}

func order() *message.Message { return message.NewMessage("order", []byte("{}")) }

func TestOutputsOfAParkedMessageGoWhereTheFirstOnesWould(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	var runs atomic.Int32
	h := func(m *message.Message) ([]*message.Message, error) {
		if runs.Add(1) == 1 {
			return nil, errors.New("boom")
		}
		bus := message.NewMessageWithContext(m.Context(), "mail", nil)
		return []*message.Message{message.NewMessage("shipped", nil), message.NewMessage("", nil)}, outbox.Publisher("mails").Publish("mail", bus)
	}
	s.run(s.inbox(), outbox.Publisher("kafka-eu"), order(), h)
	if s.ids() != "" {
		t.Fatalf("said: %s", s.ids())
	}
	worker, err := middleware.NewRetryWorker(s.inbox(), middleware.RetryWorkerConfig{ // as in another process
		Handlers: map[string]message.HandlerFunc{"stock": h}, PollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	testenv.Eventually(t, "said", func() bool { return len(s.said()) == 3 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := s.ids(); !strings.HasPrefix(got, "mail→mails/mail shipped→kafka-eu/shipments ") || !strings.HasSuffix(got, "→kafka-eu/shipments") {
		t.Errorf("said: %s", got)
	}
}

func TestPublishingWithoutAnOpenAttempt(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	publish := func(ctx context.Context) error {
		return outbox.Publisher("a").Publish("t", message.NewMessageWithContext(ctx, "x", nil))
	}
	wants := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	wants("a bare message", publish(context.Background()), outbox.ErrNoAttempt)
	wants("no message", outbox.Publisher("a").Publish("t"), nil)
	wants("nil", outbox.Publisher("a").Publish("t", nil), stores.ErrInvalidOutput)
	var kept context.Context
	s.run(s.inbox(), outbox.Publisher("a"), message.NewMessage("left", nil), func(m *message.Message) ([]*message.Message, error) {
		kept = m.Context()
		wants("of two", outbox.Publisher("a").Publish("t", message.NewMessageWithContext(kept, "x", nil), message.NewMessage("y", nil)), outbox.ErrNoAttempt)
		return nil, nil
	})
	wants("a goroutine left behind", publish(kept), outbox.ErrAttemptOver)
	s.run(s.inbox(func(c *middleware.InboxConfig) { c.Outputs = nil }), outbox.Publisher("a"), message.NewMessage("none", nil), func(m *message.Message) ([]*message.Message, error) {
		wants("an inbox without outputs", publish(m.Context()), outbox.ErrNoAttempt)
		return nil, nil
	})
	if s.ids() != "" {
		t.Errorf("said: %s", s.ids())
	}
}

// A published message may take the context of its handler's message with it.
func TestContextThatTravelsIsNobodyElsesAttempt(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	pubsub := newPreserving()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]chan error)
	publish := func(name string) message.NoPublishHandlerFunc {
		got[name] = make(chan error, 10)
		return func(m *message.Message) error {
			err := outbox.Publisher("a").Publish("t", message.NewMessageWithContext(m.Context(), "of "+name, nil))
			got[name] <- err
			return nil
		}
	}
	router.AddConsumerHandler("without an inbox", "one", pubsub, publish("one"))
	router.AddConsumerHandler("without outputs", "two", pubsub, publish("two")).
		AddMiddleware(newSpeaker(t).inbox(func(c *middleware.InboxConfig) { c.Outputs = nil }).Middleware)
	router.AddConsumerHandler("with its own", "three", pubsub, publish("three")).AddMiddleware(newSpeaker(t).inbox().Middleware)
	router.AddConsumerHandler("stock", "orders", pubsub, func(m *message.Message) error {
		for topic, c := range got {
			if err := pubsub.Publish(topic, message.NewMessageWithContext(m.Context(), "to "+topic, nil)); err != nil {
				return err
			}
			want := outbox.ErrNoAttempt
			if topic == "three" {
				want = nil
			}
			if err := receive(t, c); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", topic, err, want)
			}
		}
		return nil
	}).AddMiddleware(s.inbox().Middleware)
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	if err := pubsub.Publish("orders", order()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "acked", func() bool { return s.settled(order()) })
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if s.ids() != "" {
		t.Errorf("said: %s", s.ids())
	}
}

// Each run's outputs commit with its effects: the typed handler sees that there are two.
func TestRetryInsideTheInboxSaysNothing(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	h := sqlite.Handler(func(ctx context.Context, _ *sql.Tx, _ *message.Message) error {
		if err := outbox.Publisher("a").Publish("t", message.NewMessageWithContext(ctx, "x", nil)); err != nil {
			return err
		}
		return errors.New("boom")
	})
	inside := watermillmiddleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}
	in := s.inbox(func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
	s.run(in, outbox.Publisher("a"), order(), inside.Middleware(func(m *message.Message) ([]*message.Message, error) {
		if err := h(m); err != nil && !errors.Is(err, stores.ErrReentered) {
			return nil, err
		}
		return nil, nil // as if it had gone well
	}))
	if got := s.class(order()); got != stores.ClassConduct || s.ids() != "" {
		t.Errorf("class %s, said %q", got, s.ids())
	}
}
