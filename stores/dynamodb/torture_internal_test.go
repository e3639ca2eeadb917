package dynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/storetest"
)

// unruly does something to a share of all requests that write.
func (f *faults) unruly(share float64) {
	all := []fault{loseAnswer, lostBefore, conflicts, throttles, says(500, exception("InternalServerError")), doesAndSays(503, ""), hang}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.any = func(operation string) fault {
		if operation != transact && operation != "PutItem" && operation != "UpdateItem" && operation != "BatchWriteItem" || rand.Float64() > share {
			return nil
		}
		return all[rand.IntN(len(all))]
	}
}

// collector counts what is published.
type collector struct {
	mu  sync.Mutex
	ids map[string]int
}

func (c *collector) Publish(_ string, messages ...*message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, msg := range messages {
		c.ids[msg.UUID]++
	}
	return nil
}

func (*collector) Close() error { return nil }

// hang lets a request arrive a moment after its client has given it up.
func hang(f *faults, r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	f.hanging.Go(func() {
		<-time.After(rand.N(50 * time.Millisecond))
		if response, err := f.HTTPClient.Do(late); err == nil {
			response.Body.Close()
		}
	})
	return nil, errReset
}

// Messages are delivered several times, to several processes at once, by a service whose
// answers are lost, late or refusals: each has its effect once, and what it says is published by
// a relay with the same luck, at least once.
func TestEffectsAreOnceWhateverTheServiceDoes(t *testing.T) {
	const (
		messages   = 60
		deliveries = 3
		share      = 0.25
	)
	b := newBench(t)
	b.unruly(share)
	var runs, failing atomic.Int64
	handler := Handler(func(ctx context.Context, _ *Tx, msg *message.Message) error {
		runs.Add(1)
		if err := writeEffect(ctx, storetest.Effect{Key: string(msg.Payload), Label: "first", Run: 1}); err != nil {
			return err
		}
		if err := outbox.Publisher("").Publish("t", message.NewMessageWithContext(ctx, fmt.Sprintf("%s, run %d", msg.Payload, runs.Load()), nil)); err != nil {
			return err
		}
		if rand.IntN(10) == 0 {
			failing.Add(1)
			return errors.New("the handler fails at times")
		}
		return nil
	})
	var inboxes []message.HandlerFunc
	for range 3 {
		config := b.mirror.server.Config(t)
		config.HTTPClient = b.faults
		store, err := New(t.Context(), Config{AWS: &config, TablePrefix: strings.TrimSuffix(b.table, "inbox")})
		require.NoError(t, err)
		in, err := middleware.NewInbox(store, middleware.InboxConfig{
			Service: consumer.Service, Handler: consumer.Handler, CommitTimeout: time.Second, CacheSize: -1, Logger: slog.New(slog.DiscardHandler),
			Hold:    middleware.HoldConfig{Limit: 20 * time.Second, MinPause: time.Millisecond, MaxPause: 20 * time.Millisecond},
			Outputs: &middleware.Outputs{},
			Retry:   middleware.RetryPolicy{Placement: stores.PlacementRedelivered, MaxAttempts: 100, MaxUncounted: 1000, Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: 5 * time.Millisecond}},
		})
		require.NoError(t, err)
		inboxes = append(inboxes, in.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) }))
	}
	published := &collector{ids: make(map[string]int)}
	relay, err := outbox.New(b.Store, outbox.Config{Publishers: map[string]message.Publisher{"": published}, Logger: slog.New(slog.DiscardHandler), Keep: true})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var relaying sync.WaitGroup
	relaying.Go(func() { _ = relay.Run(ctx) })
	var group sync.WaitGroup
	limit := make(chan struct{}, 16)
	for i := range messages {
		for d := range deliveries {
			group.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				for try := 0; ; try++ { // the broker brings it until it is acked
					msg := message.NewMessage(fmt.Sprint("message ", i), fmt.Append(nil, "effect ", i))
					ctx := brokers.WithDelivery(t.Context(), msg, brokers.Delivery{Topic: "orders", Suspect: try > 0})
					msg.SetContext(ctx)
					if _, err := inboxes[(d+try)%len(inboxes)](msg); err == nil {
						return
					}
					if try == 200 {
						t.Errorf("message %d is never acked", i)
						return
					}
				}
			})
		}
	}
	group.Wait()
	b.hanging.Wait()
	b.faults.mu.Lock()
	b.faults.any = nil
	b.faults.mu.Unlock()
	require.NoError(t, relay.Flush(t.Context()))
	stop()
	relaying.Wait()
	require.Empty(t, b.pending(t))
	kept, _, err := b.MatchingOutputs(t.Context(), stores.OutputFilter{State: stores.OutputPublished}, 1000)
	require.NoError(t, err)
	require.Equal(t, messages, kept, "what was committed was said once")
	require.Len(t, published.ids, messages)
	counts := make(map[string]int)
	_, err = b.mirror.scan(t.Context(), b.mirror.effects, func(i item) error {
		counts[text(i["key"])]++
		return nil
	})
	require.NoError(t, err)
	for i := range messages {
		name := fmt.Sprint("effect ", i)
		require.Equal(t, 1, counts[name], name)
	}
	require.Len(t, counts, messages)
	t.Logf("%d messages, %d deliveries each: the handler ran %d times and failed %d times", messages, deliveries, runs.Load(), failing.Load())
}

// rewrites changes the body of a request on its way.
func rewrites(change func(body map[string]any)) fault {
	return func(f *faults, r *http.Request) (*http.Response, error) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
		change(body)
		changed, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(changed)), int64(len(changed))
		r.Header.Del("Content-Length")
		return f.HTTPClient.Do(r)
	}
}

// unconditional takes the condition from a write.
func unconditional(put map[string]any) {
	for _, name := range []string{"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"} {
		delete(put, name)
	}
}

// Each rule that is broken on the way leaves what the checks look for.
func TestBrokenRulesAreNoticed(t *testing.T) {
	b := newBench(t)
	t.Run("the claim has no condition", func(t *testing.T) {
		c := newClaim()
		first, second := b.win(t, c), newAttempt(b.Store, c, nil)
		effect(t, first, "unconditional")
		effect(t, second, "unconditional")
		require.NoError(t, first.Commit(t.Context()))
		b.then(transact, rewrites(func(body map[string]any) {
			one := body["TransactItems"].([]any)[0].(map[string]any)
			unconditional(one["Put"].(map[string]any))
		}))
		require.NoError(t, second.Commit(t.Context()))
		require.Equal(t, 2, b.effects(t, "unconditional"), "the effect is doubled")
	})
	t.Run("an unknown transaction is not closed", func(t *testing.T) {
		c := newClaim()
		a := b.win(t, c)
		effect(t, a, "unclosed")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		b.then(transact, delay, delay, delay, delay, delay, delay, delay, delay)
		require.ErrorIs(t, a.Commit(ctx), stores.ErrCommitUnknown)
		b.then(transact)
		b.then("PutItem", says(http.StatusOK, "{}")) // nothing is written
		completed, err := b.Resolve(t.Context(), c.Key)
		require.NoError(t, err)
		require.False(t, completed)
		require.Contains(t, b.arrive(t), http.StatusOK, "it was said not to be committed")
	})
	t.Run("a completion does not name what it has seen", func(t *testing.T) {
		c := newClaim()
		f := failureOf(c)
		f.Start, f.Holder, f.DueIn = true, "holder", time.Minute
		version, err := b.Record(t.Context(), f)
		require.NoError(t, err)
		_, err = b.Change(t.Context(), stores.Change{Verb: stores.VerbDiscard, Filter: stores.Filter{ID: c.Key.ID}, Break: true, Limit: 1})
		require.NoError(t, err)
		c.Take = version
		b.then("PutItem", rewrites(unconditional))
		require.NoError(t, b.win(t, c).Commit(t.Context()), "who has lost the lease has completed the message")
	})
}
