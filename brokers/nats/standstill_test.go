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
	asked   []*sign      // in what the client asks
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

func (s *sign) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.seen:
	case <-time.After(within):
		t.Errorf("%q is not sent", s.text)
	}
}

func startRelay(t *testing.T, server string, came *sign, asked ...*sign) *relay {
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
			copySome(up, client, func(sent []byte) {
				for _, s := range r.asked {
					s.look(sent)
				}
			})
		})
		answers := make(chan []byte, 1000)
		copies.Go(func() {
			defer close(answers)
			copySome(answered(answers), up, r.came.look)
		})
		for answer := range answers {
			r.open.RLock()
			_, err = client.Write(answer)
			r.open.RUnlock()
			if err != nil {
				_ = up.Close()
			}
		}
	})
	return r
}

// answered takes answers that are read before they may be sent on.
type answered chan<- []byte

func (a answered) Write(answer []byte) (int, error) {
	a <- bytes.Clone(answer)
	return len(answer), nil
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

// A client that hears nothing for a while gives up its pull. What the server has sent to it before is
// handed out all the same if it comes then: it may be the last delivery that a limit allows.
func TestWhatComesAfterAStandstillIsHandedOut(t *testing.T) {
	t.Parallel()
	server := testenv.NATS(t)
	const payload = "held back"
	waits, asksAgain, came := newSign("CONSUMER.MSG.NEXT"), newSign("CONSUMER.MSG.NEXT"), newSign(payload)
	way := startRelay(t, server, came, waits, asksAgain)
	stands, other := start(t, way.address, func(c *nats.Config) { c.Consume.AckWait = time.Minute }), start(t, server, nil)
	topic := newTopic()
	messages, err := subscribe(t, stands, topic)
	if err != nil {
		t.Fatal(err)
	}
	first := newMessage()
	publish(t, other, topic, first)
	msg, _ := receive(t, messages)
	waits.armed.Store(true)
	msg.Ack()
	waits.wait(t) // the next pull
	way.open.Lock()
	goOn := sync.OnceFunc(way.open.Unlock)
	t.Cleanup(goOn) // or the copies would wait for ever
	asksAgain.armed.Store(true)
	came.armed.Store(true)
	sent := newMessage()
	sent.Payload = []byte(payload)
	publish(t, other, topic, sent)
	came.wait(t)
	asksAgain.wait(t)
	goOn()
	msg, d := receive(t, messages)
	if msg.UUID != sent.UUID || d.Count != 1 {
		t.Errorf("%s is delivery %d", msg.UUID, d.Count)
	}
	msg.Ack()
}
