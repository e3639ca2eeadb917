package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// claims counts how many messages of each handler have asked for a claim.
type claims struct {
	mu sync.Mutex
	of map[string]int
}

func (c *claims) ClaimStart(ctx context.Context, claim stores.Claim) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[claim.Key.Consumer.Handler]++
	return ctx
}

// reach waits until so many have asked: whoever runs next shares with them.
func (c *claims) reach(t *testing.T, handler string, n int) {
	assert.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.of[handler] >= n
	}, 20*time.Second, time.Millisecond, handler)
}

// Whoever wonders why a service is slow reads how its handlers share transactions, or why they do
// not.
func TestReadyzSaysHowMessagesShare(t *testing.T) {
	const many = 8
	r := newRig(t)
	seen := &claims{of: make(map[string]int)}
	c := r.config()
	c.HTTP.Listen, c.Broker.InFlight = "127.0.0.1:0", many
	c.Inbox.Hooks = []middleware.Hook{seen}
	c.Handlers = make(map[string]router.HandlerConfig)
	for name, size := range map[string]int{"none": 8, "shares": 8, "small": 1, "apart": 8, "loses": 2} {
		c.Handlers[name] = router.HandlerConfig{Batch: router.BatchConfig{On: true, BatchConfig: middleware.BatchConfig{Size: size, From: 1, Time: 20 * time.Second}}}
	}
	svc := r.service(c)
	for name, act := range map[string]func(*message.Message) error{
		"none":  nil,
		"alone": nil, // its messages do not share
		"shares": func(m *message.Message) error { // one of the two shares, at least
			return map[string]error{"6": errors.New("it fails"), "7": errors.New("it fails")}[m.UUID]
		},
		"small": nil,
		"apart": execute("PRAGMA defer_foreign_keys = ON"),
		"loses": execute("INSERT OR ROLLBACK INTO millpond_inbox SELECT * FROM millpond_inbox"),
	} {
		svc.Handle(name, "to-"+name, func(m *message.Message) error {
			seen.reach(t, name, many)
			if act == nil {
				return nil
			}
			return act(m)
		})
	}
	stop := r.run(svc)
	require.NotContains(t, readyWithin(t, svc, http.StatusOK), "batches of", "before the first message nothing is known")
	for _, name := range []string{"alone", "shares", "small", "apart", "loses"} {
		for i := range many {
			r.publish("to-"+name, fmt.Sprint(i))
		}
	}
	const lines = `(?m)^store: ok
batches of apart: each message alone, as the handler uses PRAGMA
batches of apart: 1 since the start; [2-8] messages left them; 0 were lost
batches of loses: each message alone for now
batches of loses: 1 since the start; [12] messages left them; 1 were lost, the last one by: .*stores: the transaction that the message shared with others is lost.*
batches of shares: up to 8 messages
batches of shares: [1-4] since the start; [12] messages left them; 0 were lost
batches of small: each message alone for now
`
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, body := get(c, svc, "/readyz")
		assert.Regexp(c, lines, body)
	}, 10*time.Second, 50*time.Millisecond)
	require.NoError(t, stop())
}

func execute(statement string) func(*message.Message) error {
	return func(m *message.Message) error {
		tx, _ := sqlite.TxFromContext(m.Context())
		_, err := tx.ExecContext(m.Context(), statement)
		return err
	}
}
