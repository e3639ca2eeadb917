package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	firstOfProcess = "first 256 of a process"
	firstAfterKill = "first 256 after a kill"
	laterOfProcess = "later ones"
)

// start is how many deliveries of a process are its first.
const start = 256

// process is a service on a subscriber that does not tell redeliveries apart.
type process struct {
	*driver

	inbox *middleware.Inbox
}

func begin(ctx context.Context, store *postgres.Store, workers int) (*process, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: serviceName})
	if err != nil {
		return nil, err
	}
	d, err := newRouted(ctx, &handling{handler: postgres.Handler(write), middleware: []message.HandlerMiddleware{inbox.Middleware}}, workers)
	return &process{d, inbox}, err
}

// end ends it in order, or leaves behind what it does when it is killed.
func (p *process) end(ctx context.Context, killed bool) error {
	if killed {
		return p.close()
	}
	return errors.Join(p.close(), p.inbox.Close(ctx))
}

// startsOf makes a job of processes that begin after one that has ended in order, or was
// killed: each has its first deliveries, or one has all after those.
func startsOf(db *database, first, killed bool) func(ctx context.Context, workers, n int) (*job, error) {
	return func(ctx context.Context, workers, n int) (*job, error) {
		store, err := db.store(ctx, workers)
		if err != nil {
			return nil, err
		}
		p, err := begin(ctx, store, workers)
		if err == nil {
			_, _, err = p.run(newMessages(&recipe{}, start), start)
		}
		if err != nil {
			return nil, err
		}
		later := func() (time.Duration, []time.Duration, error) { return p.run(newMessages(&recipe{}, n), n) }
		firsts := func() (took time.Duration, latencies []time.Duration, err error) {
			for left := n; left > 0 && err == nil; left -= start {
				if err = p.end(ctx, killed); err != nil {
					break
				}
				if p, err = begin(ctx, store, workers); err != nil {
					break
				}
				some := min(start, left)
				t, l, failure := p.run(newMessages(&recipe{}, some), some)
				took, latencies, err = took+t, append(latencies, l...), failure
			}
			return took, latencies, err
		}
		j := &job{run: later, close: func() error { return errors.Join(p.end(ctx, false), store.Close(), db.holds(ctx, start+n, 0)) }}
		if first {
			j.run = firsts
		}
		return j, nil
	}
}
