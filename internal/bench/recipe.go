package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// recipe is one way of handling a message.
type recipe struct {
	name    string
	against string // the recipe of the same group that it is compared with; "" for none
	routed  bool   // under a Watermill router; else its handler is called directly
	suspect bool   // deliveries are flagged as perhaps not the first
	mixed   bool   // some of its duplicates are new messages
	pace    int    // messages a second that begin, whatever the ones before take; 0: a closed loop

	// open readies the recipe for one cell.
	open func(ctx context.Context, workers int) (*handling, error)

	// job, if set, readies one cell of n messages that is more than to deliver them.
	// Then open is not needed.
	job func(ctx context.Context, workers, n int) (*job, error)
}

// job is the work of one cell, ready to run. It is run once.
type job struct {
	run   func() (took time.Duration, latencies []time.Duration, err error) // latencies may be nil
	close func() error                                                      // also checks what was done
}

// handling is a recipe in use.
type handling struct {
	handler    message.NoPublishHandlerFunc
	middleware []message.HandlerMiddleware
	close      func() error // nil: nothing to do
}

func (h *handling) end() error {
	if h.close == nil {
		return nil
	}
	return h.close()
}

// group is a set of recipes that are compared.
type group struct {
	name    string // as the flag -groups knows it
	title   string
	about   string // what a reader must know
	workers []int
	recipes []recipe

	stayOpen   bool    // recipes are opened once, not for each cell: what connections have prepared serves all
	longer     int     // how many times longer its cells take than others; 0: once
	least      int     // messages of a cell, at least; 0: some for each worker
	server     *server // what its recipes talk to; nil for none
	sharedCPU  bool    // this process does more than the client's work, so its CPU time says nothing
	deliveries func(r *recipe, n int) load
	reset      func(context.Context) error // before each cell; nil: nothing to do
	close      func()
	trips      map[string]float64 // round trips a message, by recipe
}
