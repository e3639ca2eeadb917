package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// httpServer answers questions about a service.
type httpServer struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}
}

// readyTimeout bounds the questions of one /readyz.
const readyTimeout = 3 * time.Second

// listen begins to answer, if it is configured.
func (s *Service) listen() error {
	address := s.config.HTTP.Listen
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("router: http.listen %s: %w", address, err)
	}
	h := &httpServer{
		server: &http.Server{
			Handler: s.handler(), ReadHeaderTimeout: readyTimeout, ReadTimeout: readyTimeout,
			WriteTimeout: 10 * readyTimeout, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		},
		listener: listener,
		done:     make(chan struct{}),
	}
	s.mu.Lock()
	s.http = h
	s.mu.Unlock()
	go func() {
		defer close(h.done)
		_ = h.server.Serve(listener) // returns when it is closed
	}()
	s.log.Info("millpond: questions about the service are answered", slog.String("address", listener.Addr().String()))
	return nil
}

// HTTPAddr returns where the service answers, once Run has begun; nil without
// http.listen. With port 0 it tells the port.
func (s *Service) HTTPAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return nil
	}
	return s.http.listener.Addr()
}

func (h *httpServer) closer() io.Closer {
	if h == nil {
		return nil
	}
	return h
}

// Close implements io.Closer.
func (h *httpServer) Close() error {
	err := h.server.Close()
	<-h.done
	return err
}

func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.metrics())
	return mux
}

// metrics answers /metrics; without telemetry by what switches it on.
func (s *Service) metrics() http.Handler {
	switch {
	case s.telemetry.Metrics != nil:
		return s.telemetry.Metrics
	case s.config.Telemetry.On:
		return notFound("the program's telemetry has no metrics to be asked for here: they go where its meter provider sends them")
	}
	return notFound("no metrics, telemetry is off: set telemetry.on: true, and import _ \"" + module + "/router/telemetry\" in the program")
}

func notFound(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusNotFound) })
}

// readyz says line by line what the service needs, and 503 if it lacks something.
func (s *Service) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	status, text := http.StatusOK, ""
	say := func(what string, err error) {
		if err == nil {
			text += what + ": ok\n"
			return
		}
		status = http.StatusServiceUnavailable
		text += what + ": " + err.Error() + "\n"
	}
	pinger, pings := s.broker.(brokers.Pinger)
	var store, broker error
	var asked sync.WaitGroup // at once, so that one that hangs does not take the other's time
	asked.Go(func() { store = s.store.Validate(ctx) })
	if pings {
		asked.Go(func() { broker = pinger.Ping(ctx) })
	}
	asked.Wait()
	say("handlers", s.handlersReady())
	say("store", withoutSecrets(store, s.config.Store.URL))
	if pings {
		say("broker", withoutSecrets(broker, s.config.Broker.URL))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

var (
	errNotYet   = errors.New("not yet")
	errStopping = errors.New("the service stops")
)

func (s *Service) handlersReady() error {
	if s.stopping.Load() {
		return errStopping
	}
	select {
	case <-s.watermill.Running():
		return nil
	default:
		return errNotYet
	}
}
