package router

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
)

// httpServer answers /livez, /readyz and /metrics.
type httpServer struct {
	server   *http.Server
	listener net.Listener
	ready    *readiness
	done     chan struct{}
}

// listen starts the server, if http.listen is set.
func (r *run) listen() error {
	address := r.config.HTTP.Listen
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("router: http.listen %s: %w", address, err)
	}
	ready := newReadiness(r)
	h := &httpServer{
		server: &http.Server{
			Handler: r.handler(ready), ReadHeaderTimeout: readyTimeout, ReadTimeout: readyTimeout,
			WriteTimeout: 10 * readyTimeout, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		},
		listener: listener,
		ready:    ready,
		done:     make(chan struct{}),
	}
	r.http.Store(h)
	go func() {
		defer close(h.done)
		_ = h.server.Serve(listener) // returns when it is closed
	}()
	r.sayAddress(listener.Addr())
	return nil
}

// sayAddress logs the address. Config.Warnings warns about one without a host.
func (r *run) sayAddress(address net.Addr) {
	everywhere := ""
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		everywhere = " on all interfaces"
	}
	r.log.Info("millpond: the service answers HTTP requests"+everywhere, slog.String("address", address.String()))
}

// HTTPAddr returns the address of the HTTP server, once Run has begun; nil without http.listen.
// It includes the port that the system chose for port 0.
func (s *Service) HTTPAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	if h := s.running.http.Load(); h != nil {
		return h.listener.Addr()
	}
	return nil
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

func (r *run) handler(ready *readiness) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", ready.readyz)
	mux.Handle("GET /metrics", r.metrics())
	return mux
}

// metrics answers /metrics. Without telemetry the answer says how to switch it on.
func (r *run) metrics() http.Handler {
	switch {
	case r.telemetry.Metrics != nil:
		return r.telemetry.Metrics
	case r.config.Telemetry.On:
		return notFound("the program's meter provider exports the metrics elsewhere")
	}
	return notFound("no metrics, telemetry is off: set telemetry.on: true, and import _ \"" + module + "/router/telemetry\" in the program")
}

func notFound(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusNotFound) })
}
