package main

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// receiver is what a collector is to an exporter.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	token string                    // of the requests
	spans map[string][]*traces.Span // by service and name
}

// Export implements collector.TraceServiceServer.
func (r *receiver) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		r.token = strings.Join(headers.Get("x-token"), " ")
	}
	for _, resource := range request.GetResourceSpans() {
		service := stringOf(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans[service+": "+span.GetName()] = append(r.spans[service+": "+span.GetName()], span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func stringOf(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// A collector that the standard variables name gets the spans of both services, which are
// one trace.
func TestOTLP(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{spans: make(map[string][]*traces.Span)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=canary")
	code, out, messages := tracing(t, []string{onKafka(t)})
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, messages)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token != "canary" {
		t.Errorf("the header is %q", r.token)
	}
	for name, n := range map[string]int{
		"shop: POST /orders": 3, "shop: send orders": 3,
		"warehouse: process orders": 5, // that of the order of nothing, too
		"warehouse: UPDATE stock":   4, "warehouse: INSERT reservation": 3, "warehouse: commit": 3,
	} {
		if len(r.spans[name]) != n {
			t.Errorf("%d spans %q have arrived, want %d", len(r.spans[name]), name, n)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	first := r.spans["shop: POST /orders"][0]
	inTrace := func(span *traces.Span) bool { return bytes.Equal(span.GetTraceId(), first.GetTraceId()) }
	if !slices.ContainsFunc(r.spans["warehouse: INSERT reservation"], inTrace) {
		t.Error("no statement is in the trace of the first request")
	}
	links := 0
	for _, span := range r.spans["warehouse: process orders"] {
		for _, link := range span.GetLinks() {
			links++
			if !bytes.Equal(link.GetTraceId(), first.GetTraceId()) {
				t.Errorf("the duplicate is linked to trace %x", link.GetTraceId())
			}
		}
	}
	if links != 1 {
		t.Errorf("there are %d links, want the duplicate's", links)
	}
}
