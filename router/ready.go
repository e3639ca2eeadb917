package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

const (
	// readyTimeout bounds the queries behind an answer of /readyz.
	readyTimeout = 3 * time.Second
	// readyLasts is how long an answer is reused. More frequent requests cost the store
	// nothing, because its connections are for the handlers.
	readyLasts = time.Second
)

// readiness answers /readyz. It queries store and broker on request, once at a time, on the
// connection that fitting.pool adds to those of handlers and retries. All waiting requests
// share the answer.
type readiness struct {
	run    *run
	life   context.Context
	end    context.CancelFunc
	asking sync.WaitGroup

	mu   sync.Mutex
	last *answer
}

// answer is the result of one query; its fields may be read when done is closed.
type answer struct {
	done          chan struct{}
	at            time.Time
	store, broker error
}

func newReadiness(s *run) *readiness {
	r := &readiness{run: s}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// close cancels the running query and waits for it.
func (r *readiness) close() {
	r.mu.Lock() // no query begins after the wait
	r.end()
	r.mu.Unlock()
	r.asking.Wait()
}

// answer returns the current answer, or waits for the next one until ctx ends.
func (r *readiness) answer(ctx context.Context) (store, broker error) {
	a := r.current()
	select {
	case <-a.done:
		return a.store, a.broker
	case <-ctx.Done():
		return ctx.Err(), ctx.Err()
	}
}

func (r *readiness) current() *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.last; a != nil {
		select {
		case <-a.done:
			if time.Since(a.at) < readyLasts {
				return a
			}
		default:
			return a
		}
	}
	a := &answer{done: make(chan struct{})}
	r.last = a
	if r.life.Err() != nil {
		a.store, a.broker, a.at = errStopping, errStopping, time.Now()
		close(a.done)
		return a
	}
	r.asking.Go(func() { r.ask(a) })
	return a
}

// ask queries store and broker at the same time, so that a hanging one does not delay the
// other.
func (r *readiness) ask(a *answer) {
	defer close(a.done)
	ctx, cancel := context.WithTimeout(r.life, readyTimeout) // not of a request, because others wait too
	defer cancel()
	var asked sync.WaitGroup
	asked.Go(func() { a.store = r.run.store.Validate(ctx) })
	if pinger, ok := r.run.broker.(brokers.Pinger); ok {
		asked.Go(func() { a.broker = pinger.Ping(ctx) })
	}
	asked.Wait()
	if a.store == nil { // it answers, but may refuse claims: it is read-only, for example
		a.store = r.run.inbox.Ready(ctx)
	}
	a.at = time.Now()
}

// readyz has a line for each part of the service, and is 503 if one is not ready.
func (r *readiness) readyz(w http.ResponseWriter, request *http.Request) {
	s := r.run
	status, text := http.StatusOK, ""
	say := func(what string, err error) {
		if err == nil {
			text += what + ": ok\n"
			return
		}
		status = http.StatusServiceUnavailable
		text += what + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+what+": ") + "\n"
	}
	store, broker := r.answer(request.Context())
	handlers := s.handlersReady()
	say("handlers", handlers)
	say("store", withoutSecrets(store, s.config.Store.URL))
	if _, pings := s.broker.(brokers.Pinger); pings {
		say("broker", withoutSecrets(broker, s.config.Broker.URL))
	}
	text += s.batches()
	if s.relay.relay.Load() != nil {
		text += "relay: " + s.backlog() + "\n"
	}
	if handlers == nil { // before that there are no subscribers
		if known, err := s.receiving(); known {
			say("messages", withoutSecrets(err, s.config.Broker.URL))
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// batches says of each handler whose messages share transactions how many do.
func (r *run) batches() (text string) {
	states := r.inbox.Batches()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		switch s := states[name]; {
		case s.Apart != "":
			text += fmt.Sprintf("batches of %s: each message alone, as the handler uses %s\n", name, s.Apart)
		case s.Size > 1:
			text += fmt.Sprintf("batches of %s: up to %d messages\n", name, s.Size)
		case s.Size == 1:
			text += fmt.Sprintf("batches of %s: each message alone for now\n", name)
		}
		if s := states[name]; s.Lost > 0 || s.Left > 0 {
			text += fmt.Sprintf("batches of %s: %d since the start; %d messages left them; %d were lost", name, s.Batches, s.Left, s.Lost)
			if s.Why != "" {
				text += ", the last one by: " + s.Why
			}
			text += "\n"
		}
	}
	return text
}

var (
	errNotYet   = errors.New("not yet")
	errStopping = errors.New("the service stops")
)

func (r *run) handlersReady() error {
	if r.stopping.Load() {
		return errStopping
	}
	select {
	case <-r.watermill.Running():
		return nil
	default:
		return errNotYet
	}
}

// receiving asks the handlers' subscribers whether messages reach them: a broker that
// answers may have dropped a subscription. known is false if no subscriber can tell.
func (r *run) receiving() (known bool, err error) {
	var errs []error
	for _, h := range r.handlers {
		if r, ok := h.subscriber.(brokers.Receiver); ok {
			known = true
			if err := r.Receiving(); err != nil {
				errs = append(errs, fmt.Errorf("%s gets none: %w", h.name, err))
			}
		}
	}
	return known, errors.Join(errs...)
}
