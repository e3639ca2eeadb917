package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/router"
)

// services are the shop and the warehouse, while they run.
type services struct {
	environment *environment
	providers   *providers

	topic     string
	warehouse *router.Service
	broker    brokers.Broker // the shop's
	shop      *http.Server
	url       string         // of the shop
	closers   []func() error // in the order of what they close
}

func (s *services) start(ctx context.Context) error {
	s.topic = "tracing-orders-" + uuid.NewString()
	if err := s.startWarehouse(ctx); err != nil {
		return err
	}
	return s.startShop(ctx)
}

func (s *services) startWarehouse(ctx context.Context) error {
	tracers, err := s.providers.of(ctx, "warehouse")
	if err != nil {
		return err
	}
	s.warehouse, err = newWarehouse(ctx, s.environment.variables, s.topic, tracers)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.warehouse.Close)
	if err := prepare(ctx, s.warehouse.Store()); err != nil {
		return err
	}
	// Not ctx: when that ends the story does, which then stops the service.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.warehouse.Run(running) }()
	stop := func() error {
		cancel()
		return <-ended
	}
	select {
	case <-s.warehouse.Watermill().Running():
		s.closers = append(s.closers, stop)
		return nil
	case err := <-ended:
		cancel()
		return err
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), stop())
	}
}

func (s *services) startShop(ctx context.Context) error {
	tracers, err := s.providers.of(ctx, "shop")
	if err != nil {
		return err
	}
	s.broker, err = brokers.Open(ctx, s.environment.get(brokerVariable))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.broker.Close)
	handler, err := newShop(s.broker, s.topic, tracers)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + listener.Addr().String()
	s.shop = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	s.closers = append(s.closers, s.shop.Close)
	go func() { _ = s.shop.Serve(listener) }()
	return nil
}

// stop ends everything, the last first, and then sends the spans that were not sent.
func (s *services) stop() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	s.closers = nil
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.providers.shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("not all spans were sent: %w", err))
	}
	return errors.Join(errs...)
}

// greet publishes an order of nothing. When it is handled the broker has given the
// warehouse its part of the topic, and what comes afterwards is not suspect of having been
// there before.
func (s *services) greet(ctx context.Context) error {
	publisher, err := s.broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	nothing := order{ID: "order-0", Article: "desk"}
	payload, err := json.Marshal(nothing)
	if err != nil {
		return err
	}
	if err := publisher.Publish(s.topic, message.NewMessage(nothing.ID, payload)); err != nil {
		return err
	}
	return s.await(ctx, nothing.ID, 1)
}

// post posts an order to the shop.
func (s *services) post(ctx context.Context, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the shop answers %s", response.Status)
	}
	return nil
}

// await waits until so many deliveries of an order have ended.
func (s *services) await(ctx context.Context, id string, deliveries int) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		n := 0
		for _, span := range s.providers.kept.GetSpans() {
			if span.Name == "process orders" && attributeOf(span.Attributes, "messaging.message.id") == id {
				n++
			}
		}
		if n >= deliveries {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d deliveries of %s: %w", n, deliveries, id, context.Cause(ctx))
		}
	}
}

// showMetrics shows some lines of the warehouse's /metrics.
func (s *services) showMetrics(ctx context.Context, out io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.warehouse.HTTPAddr().String()+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, "GET /metrics\n"); err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "millpond_deliveries_total{") && !strings.HasPrefix(line, "millpond_cache_hits_total{") {
			continue
		}
		if _, err := fmt.Fprint(out, "  ", short(line)); err != nil {
			return err
		}
	}
	return nil
}

// short leaves out labels that every line has.
func short(line string) string {
	name, rest, _ := strings.Cut(line, "{")
	labels, value, _ := strings.Cut(rest, "}")
	var kept []string
	for label := range strings.SplitSeq(labels, ",") {
		if strings.HasPrefix(label, "millpond_") || strings.HasPrefix(label, "error_type") {
			kept = append(kept, label)
		}
	}
	return name + "{" + strings.Join(kept, ",") + "}" + value
}

// keep posts an order a second until ctx ends.
func (s *services) keep(ctx context.Context, progress io.Writer) error {
	fmt.Fprintf(progress, "an order a second, until interrupted; metrics: http://%s/metrics\n", s.warehouse.HTTPAddr())
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 3; ; n++ {
		s.providers.kept.Reset()
		article := "desk"
		if n%5 == 0 {
			article = "lamp"
		}
		if err := s.post(ctx, order{"order-" + strconv.Itoa(n), article, 1}); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
