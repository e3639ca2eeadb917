package postgres_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Whatever of a COMMIT is lost, what it said is written once, and the handler under a lease is
// not run again for it.
func TestOutputsOfALostCommit(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	leased := func(c *middleware.InboxConfig) {
		c.LeaseByHandler = map[string]middleware.LeaseConfig{pgtest.Stock.Handler: {TTL: 30 * time.Second}}
	}
	var want []string
	for _, test := range []struct {
		name      string
		configure func(*middleware.InboxConfig)
		lose      func(*pgproxy.Proxy, int)
		runs      int
	}{
		{"reply", nil, (*pgproxy.Proxy).LoseCommitReply, 1},
		{"request", nil, (*pgproxy.Proxy).LoseCommitRequest, 2},
		{"reply under a lease", leased, (*pgproxy.Proxy).LoseCommitReply, 1},
		{"request under a lease", leased, (*pgproxy.Proxy).LoseCommitRequest, 1},
	} {
		runs := 0
		h := saysInbox(t, s, test.configure, func(m *message.Message) error {
			if runs++; runs == 1 {
				test.lose(proxy, 1)
			}
			to := outbox.Publisher("kafka")
			return to.Publish("t", message.NewMessageWithContext(m.Context(), "1 of "+m.UUID, nil), message.NewMessageWithContext(m.Context(), "2 of "+m.UUID, nil))
		})
		for range 2 {
			m := message.NewMessageWithContext(t.Context(), test.name, []byte("payload"))
			if _, err := h(m); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
		}
		if runs != test.runs {
			t.Errorf("%s: the handler ran %d times, want %d", test.name, runs, test.runs)
		}
		want = append(want, "1 of "+test.name, "2 of "+test.name)
	}
	var got string
	if err := s.Pool().QueryRow(t.Context(), "SELECT string_agg(convert_from(message_id, 'UTF8'), ', ' ORDER BY id) FROM millpond_outbox").Scan(&got); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	all := strings.Split(got, ", ")
	slices.Sort(all)
	if !slices.Equal(all, want) {
		t.Errorf("there wait %q, want %q", all, want)
	}
}

// saysInbox is a handler behind an inbox with outputs.
func saysInbox(t *testing.T, s *postgres.Store, configure func(*middleware.InboxConfig), h func(*message.Message) error) message.HandlerFunc {
	t.Helper()
	c := middleware.InboxConfig{
		Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler, CacheSize: -1, Logger: slog.New(slog.DiscardHandler),
		Outputs: &middleware.Outputs{}, Hold: middleware.HoldConfig{MinPause: 10 * time.Millisecond, MaxPause: 50 * time.Millisecond},
	}
	if configure != nil {
		configure(&c)
	}
	in, err := middleware.NewInbox(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return in.Middleware(func(m *message.Message) ([]*message.Message, error) { return nil, h(m) })
}
