package main

import (
	"context"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// callResult is what one call costs on one goroutine.
type callResult struct {
	Name   string `json:"name"`
	Time   span   `json:"ns_per_call"`
	Allocs figure `json:"allocs_per_call"`
	Bytes  figure `json:"bytes_per_call"`
}

// instantStore claims at once and keeps nothing, so that what is left is the inbox.
type instantStore struct{}

func (instantStore) Begin(context.Context, stores.Claim) (stores.Attempt, stores.Verdict, error) {
	return instantAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
}

func (instantStore) Register(context.Context, stores.Registration) error { return nil }

func (instantStore) Quarantine(context.Context, stores.Quarantined) error { return nil }

func (instantStore) Look(context.Context, stores.Key, stores.Fingerprint) (stores.Verdict, error) {
	return stores.Verdict{Outcome: stores.Claimable}, nil
}

func (instantStore) KeepContent(context.Context, stores.Key, int64, stores.Content) error { return nil }

func (instantStore) Record(_ context.Context, f stores.Failure) (int64, error) {
	return f.Version + 1, nil
}

type instantAttempt struct{}

func (instantAttempt) Context(parent context.Context) context.Context { return parent }
func (instantAttempt) Commit(context.Context) error                   { return nil }
func (instantAttempt) Rollback(context.Context) error                 { return nil }

const (
	inboxFirstSight = "inbox, first sight"
	inboxFromCache  = "inbox, duplicate known to the process"
	payloadBytes    = 1000
)

// measureInbox measures the inbox alone. The handler does nothing.
func measureInbox(ctx context.Context, o options) ([]callResult, error) {
	const cacheSize = 10_000 // the default
	handler := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	var results []callResult
	for _, c := range []struct {
		name     string
		messages int // more than the cache holds: each is forgotten before it comes again
	}{
		{inboxFirstSight, 2 * cacheSize},
		{inboxFromCache, cacheSize / 10},
	} {
		if !o.selected(c.name + "/1") {
			continue
		}
		inbox, err := middleware.NewInbox(instantStore{}, middleware.InboxConfig{
			Service: serviceName, Handler: handlerName, CacheSize: cacheSize,
		})
		if err != nil {
			return nil, err
		}
		messages := make([]*message.Message, c.messages)
		for i := range messages {
			messages[i] = newDelivery(uuid.NewString(), false).msg
			messages[i].Payload = make([]byte, payloadBytes)
		}
		pprof.Do(ctx, pprof.Labels("recipe", c.name), func(context.Context) {
			var r callResult
			if r, err = measureCalls(inbox.Middleware(handler), messages, o); err == nil {
				r.Name = c.name
				results = append(results, r)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// measureCalls calls a handler with each message in turn, as often as the options
// say. The first time is not measured.
func measureCalls(handler message.HandlerFunc, messages []*message.Message, o options) (callResult, error) {
	var times []figure
	var before, after runtime.MemStats
	calls := 0
	for repeat := range o.repeats + 1 {
		if repeat == 1 {
			runtime.GC()
			runtime.ReadMemStats(&before)
			calls = 0
		}
		n, start := 0, time.Now()
		for time.Since(start) < o.cell {
			for _, msg := range messages {
				if _, err := handler(msg); err != nil {
					return callResult{}, err
				}
			}
			n += len(messages)
		}
		calls += n
		if repeat > 0 {
			times = append(times, figure(float64(time.Since(start).Nanoseconds())/float64(n)))
		}
	}
	runtime.ReadMemStats(&after)
	return callResult{
		Time:   spanOf(times),
		Allocs: figure(float64(after.Mallocs-before.Mallocs) / float64(calls)),
		Bytes:  figure(float64(after.TotalAlloc-before.TotalAlloc) / float64(calls)),
	}, nil
}
