package nats_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/internal/testenv"
)

// relay stands between one client and a server, whose answers it can hold back.
type relay struct {
	address string
	open    sync.RWMutex // locked while answers are held back
	asked   *sign        // in what the client asks
	came    *sign        // in what the server answers
}

// sign is something that is sent.
type sign struct {
	text  string
	armed atomic.Bool
	seen  chan struct{} // closed when it is sent while it is armed
}

func newSign(text string) *sign { return &sign{text: text, seen: make(chan struct{})} }

func (s *sign) look(sent []byte) {
	if bytes.Contains(sent, []byte(s.text)) && s.armed.CompareAndSwap(true, false) {
		close(s.seen)
	}
}

func startRelay(t *testing.T, server string, asked, came *sign) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: "nats://" + listener.Addr().String(), asked: asked, came: came}
	var copies sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		copies.Wait()
	})
	copies.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		up, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		copies.Go(func() {
			defer up.Close()
			copySome(up, client, r.asked.look)
		})
		copySome(client, up, func(sent []byte) {
			r.came.look(sent)
			r.open.RLock()
			r.open.RUnlock() //nolint:staticcheck // it waits
		})
	})
	return r
}

func copySome(to io.Writer, from io.Reader, look func(sent []byte)) {
	for some := make([]byte, 1<<16); ; {
		n, err := from.Read(some)
		look(some[:n])
		if _, failed := to.Write(some[:n]); failed != nil || err != nil {
			return
		}
	}
}

// A client that hears nothing for a while looks for its stream again. What the server has sent to
// it before is handed out all the same: it may be the last delivery that a limit allows.
func TestWhatComesAfterAStandstillIsHandedOut(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t)
	const payload = "held back"
	way := startRelay(t, server, newSign("STREAM.NAMES"), newSign(payload))
	stands, other := start(t, way.address, func(c *nats.Config) { c.Consume.AckWait = time.Minute }), start(t, server, nil)
	topic := newTopic()
	messages, err := subscribe(t, stands, topic)
	if err != nil {
		t.Fatal(err)
	}
	first := newMessage()
	publish(t, other, topic, first)
	msg, _ := receive(t, messages)
	msg.Ack() // so that the next pull waits
	way.open.Lock()
	way.asked.armed.Store(true)
	way.came.armed.Store(true)
	sent := newMessage()
	sent.Payload = []byte(payload)
	publish(t, other, topic, sent)
	for _, s := range []*sign{way.came, way.asked} {
		select {
		case <-s.seen:
		case <-time.After(within):
			t.Errorf("%q is not sent", s.text)
		}
	}
	way.open.Unlock()
	msg, d := receive(t, messages)
	if msg.UUID != sent.UUID || d.Count != 1 {
		t.Errorf("%s is delivery %d", msg.UUID, d.Count)
	}
	msg.Ack()
}
