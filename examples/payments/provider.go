package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// keyMemory is how long the provider remembers an idempotency key.
const keyMemory = 6 * time.Second

// How the provider is: one answer in so many is lost, each takes a while, and one order in so
// many meets a line that is dead for longer than the provider remembers its key.
const (
	loseOneIn = 8
	slowest   = 40 * time.Millisecond
	deadOneIn = 60
	deadFor   = keyMemory + time.Second
)

// provider is a payment provider, over HTTP. With a key that it has seen it answers what it has
// answered before; then it forgets the key, and would charge again.
type provider struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	seen     map[string]remembered // by idempotency key
	asked    map[string]time.Time  // by order, for the first time
	books    map[string][]charge   // by order
	requests int
	replays  int
	lost     int
}

// charge is one line of the provider's books.
type charge struct {
	Cents   int64
	Receipt string
}

type remembered struct {
	receipt string
	until   time.Time
}

func openProvider() (*provider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed with the server
	if err != nil {
		return nil, err
	}
	p := &provider{
		url:  "http://" + listener.Addr().String(),
		seen: make(map[string]remembered), asked: make(map[string]time.Time), books: make(map[string][]charge),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() {
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // there is nothing to do without it
		}
	}()
	return p, nil
}

func (p *provider) close() { _ = p.server.Close() }

// charge answers a request, unless the answer is lost. The money is taken in any case.
func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n, receipt, dead := p.book(r.Header.Get("Idempotency-Key"), o)
	pause.Sleep(r.Context(), time.Duration(chance(n, "slow"))%slowest)
	if dead || chance(n, "lost")%loseOneIn == 0 {
		p.mu.Lock()
		p.lost++
		p.mu.Unlock()
		panic(http.ErrAbortHandler) // the connection is cut
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"receipt":%q}`, receipt)
}

// book books a charge, unless its key is remembered.
func (p *provider) book(key string, o order) (n int, receipt string, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	now := time.Now()
	if _, known := p.asked[o.OrderID]; !known {
		p.asked[o.OrderID] = now
	}
	dead = chance(0, o.OrderID)%deadOneIn == 0 && now.Sub(p.asked[o.OrderID]) < deadFor
	if was, ok := p.seen[key]; ok && key != "" && now.Before(was.until) {
		p.replays++
		return p.requests, was.receipt, dead
	}
	c := charge{o.Cents, fmt.Sprintf("r-%06d", p.requests)}
	p.books[o.OrderID] = append(p.books[o.OrderID], c)
	p.seen[key] = remembered{c.Receipt, now.Add(keyMemory)}
	return p.requests, c.Receipt, dead
}

// chance is a number that looks like any other.
func chance(n int, of string) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s", n, of)
	return h.Sum32() ^ h.Sum32()>>15
}

// charges is what an operator sees on the provider's pages.
func (p *provider) charges(orderID string) []charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.books[orderID]
}

func (p *provider) progress() (charged, requests, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.books), p.requests, p.lost
}
