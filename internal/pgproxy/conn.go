package pgproxy

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// conn is one client's connection and the one to the server that belongs to it.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	quit           chan struct{} // closed when the connection is cut
	once           sync.Once
	pid            atomic.Uint32

	mu      sync.Mutex // guards what both directions use
	tracker *tracker
	stats   Stats
}

func newConn(p *Proxy, client, server net.Conn) *conn {
	return &conn{
		proxy: p, client: client, server: server,
		quit:    make(chan struct{}),
		tracker: newTracker(),
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
	r := bufio.NewReaderSize(c.client, bufferBytes)
	if !c.forwardStartup(r) {
		return
	}
	var out []byte
	var turn time.Time // when the turn began whose first bytes are in out
	for {
		start := len(out)
		kind, body, extended, err := readMessage(r, out)
		if err != nil {
			c.write(c.server, out) // the client's last words
			return
		}
		out = extended
		now := time.Now()
		newTurn, happens, err := c.request(kind, body)
		if err != nil {
			return
		}
		if newTurn && turn.IsZero() {
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
		if another(r) && len(out) < bufferBytes {
			continue
		}
		if !c.delay(turn) || !c.write(c.server, out) {
			return
		}
		out, turn = reuse(out), time.Time{}
	}
}

// forwardStartup forwards what comes before the first typed message.
func (c *conn) forwardStartup(r *bufio.Reader) bool {
	for {
		raw, body, err := readStartup(r)
		if err != nil {
			return false
		}
		began := time.Now()
		if (&pgproto3.SSLRequest{}).Decode(body) == nil || (&pgproto3.GSSEncRequest{}).Decode(body) == nil {
			if !c.write(c.client, []byte{'N'}) { // not here: nothing could be followed
				return false
			}
			continue
		}
		if !c.delay(began) || !c.write(c.server, raw) {
			return false
		}
		// A cancellation is the whole conversation: the server closes it.
		return (&pgproto3.CancelRequest{}).Decode(body) != nil || c.awaitCut()
	}
}

func (c *conn) awaitCut() bool {
	<-c.quit
	return false
}

// forwardReplies forwards from the server to the client.
func (c *conn) forwardReplies() {
	r := bufio.NewReaderSize(c.server, bufferBytes)
	var out []byte
	for {
		start := len(out)
		kind, body, extended, err := readMessage(r, out)
		if err != nil {
			c.write(c.client, out)
			return
		}
		out = extended
		happens, err := c.reply(kind, body)
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
		if another(r) && len(out) < bufferBytes {
			continue
		}
		if !c.write(c.client, out) {
			return
		}
		out = reuse(out)
	}
}

// request counts a message of the client and says what happens to it.
func (c *conn) request(kind byte, body []byte) (newTurn bool, happens fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.tracker.client(kind, body)
	if err != nil {
		return false, fault{}, err
	}
	if s.turn {
		c.stats.RoundTrips++
	}
	if s.execute {
		c.stats.Statements[s.sql]++
	}
	if s.commit {
		happens = c.proxy.faults.request()
		c.tracker.setFault(happens)
		if happens.loseRequest {
			c.stats.RequestsLost++
		}
	}
	return s.turn || !c.tracker.started, happens, nil
}

// reply counts a message of the server and says what happens to it.
func (c *conn) reply(kind byte, body []byte) (happens fault, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.tracker.server(kind, body)
	if err != nil {
		return fault{}, err
	}
	if r.pid != 0 {
		c.pid.Store(r.pid)
	}
	if r.committed {
		c.stats.Commits++
	}
	if r.rolledBack {
		c.stats.Rollbacks++
	}
	if r.commitReply {
		happens = c.proxy.faults.reply(r.fault)
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
