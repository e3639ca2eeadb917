package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
)

// httpServer answers questions about a service.
type httpServer struct {
	server   *http.Server
	listener net.Listener
	ready    *readiness
	done     chan struct{}
}

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
	ready := newReadiness(s)
	h := &httpServer{
		server: &http.Server{
			Handler: s.handler(ready), ReadHeaderTimeout: readyTimeout, ReadTimeout: readyTimeout,
			WriteTimeout: 10 * readyTimeout, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		},
		listener: listener,
		ready:    ready,
		done:     make(chan struct{}),
	}
	s.mu.Lock()
	s.http = h
	s.mu.Unlock()
	go func() {
		defer close(h.done)
		_ = h.server.Serve(listener) // returns when it is closed
	}()
	s.sayAddress(listener.Addr())
	return nil
}

// sayAddress logs where the service answers. Of an address without a host, which not everybody
// means to be everywhere, Config.Warnings warns.
func (s *Service) sayAddress(address net.Addr) {
	everywhere := ""
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		everywhere = " on all interfaces"
	}
	s.log.Info("millpond: questions about the service are answered"+everywhere, slog.String("address", address.String()))
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
	h.ready.close()
	return err
}

func (s *Service) handler(ready *readiness) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", ready.readyz)
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
