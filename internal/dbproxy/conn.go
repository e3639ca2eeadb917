package dbproxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client's connection and the one to the server that belongs to it.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	quit           chan struct{} // closed when the connection is cut
	once           sync.Once
	id             atomic.Uint32

	mu      sync.Mutex // guards what both directions use
	session Session
	stats   Stats
}

func newConn(p *Proxy, client, server net.Conn) *conn {
	return &conn{
		proxy: p, client: client, server: server,
		quit:    make(chan struct{}),
		session: p.newSession(),
		stats:   Stats{Statements: make(map[string]int)},
	}
}

// run forwards until one side closes or the connection is cut.
func (c *conn) run() {
	var replies sync.WaitGroup
	replies.Go(func() { c.forwardReplies(); c.end() })
	c.forwardRequests()
	c.end()
	replies.Wait()
}

// end passes the end of one side on to the other, unless the network is frozen.
func (c *conn) end() {
	if c.proxy.gate.pass(c.quit) {
		c.cut()
	}
}

func (c *conn) cut() {
	c.once.Do(func() {
		close(c.quit)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

func (c *conn) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats.plus(Stats{}) // a copy
}

// forwardRequests forwards from the client to the server.
func (c *conn) forwardRequests() {
	r := newReader(c.client, c.session.HeaderBytes(), c.session.RequestLength)
	var out []byte
	var turn time.Time // when the turn began whose first bytes are in out
	for {
		start := len(out)
		extended, err := r.message(out)
		if err != nil {
			c.write(c.server, out) // the client's last words
			return
		}
		out = extended
		now := time.Now()
		request, happens, err := c.request(out[start:])
		if err != nil {
			return
		}
		if len(request.Answer) > 0 {
			out = out[:start]
			if !c.write(c.client, request.Answer) {
				return
			}
		} else if (request.Turn || request.Setup) && turn.IsZero() {
			turn = now
		}
		if happens.loseRequest {
			// What came before it arrives; whether it is answered does not matter.
			if c.delay(turn) {
				c.write(c.server, out[:start])
			}
			c.cut()
			return
		}
		if r.another() && len(out) < bufferBytes && !request.Last {
			continue
		}
		if !c.delay(turn) || !c.write(c.server, out) {
			return
		}
		if request.Last {
			<-c.quit
			return
		}
		out, turn = reuse(out), time.Time{}
	}
}

// forwardReplies forwards from the server to the client.
func (c *conn) forwardReplies() {
	r := newReader(c.server, c.session.HeaderBytes(), c.session.ReplyLength)
	var out []byte
	for {
		start := len(out)
		extended, err := r.message(out)
		if err != nil {
			c.write(c.client, out)
			return
		}
		out = extended
		happens, err := c.reply(out[start:])
		if err != nil {
			return
		}
		if happens.loseReply || happens.delay > 0 {
			// What came before it is not held back.
			if !c.write(c.client, out[:start]) {
				return
			}
			if happens.loseReply {
				c.cut()
				return
			}
			if !sleepUntil(time.Now().Add(happens.delay), c.quit) {
				return
			}
			out = out[start:]
		}
		if r.another() && len(out) < bufferBytes {
			continue
		}
		if !c.write(c.client, out) {
			return
		}
		out = reuse(out)
	}
}

// request counts a message of the client and says what happens to it.
func (c *conn) request(message []byte) (request Request, happens Fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request, err = c.session.Request(message)
	if err != nil {
		return request, Fault{}, err
	}
	if request.Turn {
		c.stats.RoundTrips++
	}
	if request.Execute {
		c.stats.Statements[request.SQL]++
	}
	if request.Commit {
		happens = c.proxy.faults.request()
		c.session.Inject(happens)
		if happens.loseRequest {
			c.stats.RequestsLost++
		}
	}
	return request, happens, nil
}

// reply counts a message of the server and says what happens to it.
func (c *conn) reply(message []byte) (happens Fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.session.Reply(message)
	if err != nil {
		return Fault{}, err
	}
	if r.ID != 0 {
		c.id.Store(r.ID)
	}
	if r.Committed {
		c.stats.Commits++
	}
	if r.RolledBack {
		c.stats.Rollbacks++
	}
	if r.Commit {
		happens = c.proxy.faults.reply(r.Fault)
		if happens.loseReply {
			c.stats.RepliesLost++
		}
	}
	return happens, nil
}

// delay waits until a turn that began at a time may arrive at the server; false means
// that the connection was cut. The zero time is no beginning.
func (c *conn) delay(began time.Time) bool {
	latency := time.Duration(c.proxy.latency.Load())
	if began.IsZero() || latency <= 0 {
		return true
	}
	return sleepUntil(began.Add(latency), c.quit)
}

// write writes unless the network is frozen; false means that the connection has ended.
func (c *conn) write(to net.Conn, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if !c.proxy.gate.pass(c.quit) {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// reuse empties a buffer, and gives up one that a large message has left.
func reuse(b []byte) []byte {
	if cap(b) > 4*bufferBytes {
		return nil
	}
	return b[:0]
}
