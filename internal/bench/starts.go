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

// silently is a load of new messages of which the subscriber says nothing.
func silently(n int) load {
	l := newMessages(&recipe{}, n)
	for _, d := range l.deliveries {
		d.msg.SetContext(context.Background())
	}
	return l
}

func begin(ctx context.Context, store *postgres.Store, workers int) (*process, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: serviceName})
	if err != nil {
		return nil, err
	}
	d, err := newRouted(ctx, &handling{handler: postgres.Handler(write), middleware: []message.HandlerMiddleware{inbox.Middleware}}, workers)
	return &process{d, inbox}, err
}

// end ends it in order.
func (p *process) end(ctx context.Context) error {
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
			_, _, err = p.run(silently(start), start)
		}
		if err != nil {
			return nil, err
		}
		var dead []*process
		later := func() (time.Duration, []time.Duration, error) { return p.run(silently(n), n) }
		firsts := func() (took time.Duration, latencies []time.Duration, err error) {
			for left := n; left > 0 && err == nil; left -= start {
				if killed {
					dead = append(dead, p)
					err = p.close()
				} else {
					err = p.end(ctx)
				}
				if err != nil {
					break
				}
				if p, err = begin(ctx, store, workers); err != nil {
					break
				}
				some := min(start, left)
				t, l, failure := p.run(silently(some), some)
				took, latencies, err = took+t, append(latencies, l...), failure
			}
			return took, latencies, err
		}
		j := &job{run: later, close: func() error {
			for _, p := range dead { // nobody fears for what they had in flight any more
				err = errors.Join(err, p.inbox.Close(ctx))
			}
			return errors.Join(err, p.end(ctx), store.Close(), db.holds(ctx, start+n, 0))
		}}
		if first {
			j.run = firsts
		}
		return j, nil
	}
}
