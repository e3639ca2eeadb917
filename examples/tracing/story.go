package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// posts are the requests of the story.
var posts = []struct {
	what       string
	order      order
	deliveries int // of the order, when its story is over
}{
	{"an order", order{"order-1", "desk", 2}, 1},
	{"the same order, which the client sends again", order{"order-1", "desk", 2}, 2},
	{"an order whose shelf is locked at first", order{"order-2", "lamp", 1}, 2},
}

// story is what happens: the services run, orders are posted, and the traces are shown.
func story(parent context.Context, o options, out, progress io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(parent, o.timeout, fmt.Errorf("it is not done within %s", o.timeout))
	defer cancel()
	e, err := newEnvironment(ctx, o, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := &services{environment: e, providers: newProviders(e)}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.greet(ctx); err != nil {
		return err
	}

	for _, p := range posts {
		if err := s.post(ctx, p.order); err != nil {
			return err
		}
		if err := s.await(ctx, p.order.ID, p.deliveries); err != nil {
			return err
		}
	}
	traces := grow(s.providers.kept.GetSpans())
	if err := show(out, traces); err != nil {
		return err
	}
	if err := s.showMetrics(ctx, out); err != nil {
		return err
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, draw(traces), 0o600); err != nil {
			return err
		}
	}
	if o.keep {
		cancel() // there is no hurry any more
		return s.keep(parent, progress)
	}
	return nil
}
