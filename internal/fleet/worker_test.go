package fleet

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// fakeParent is the other end of a worker in the same process.
type fakeParent struct {
	t     *testing.T
	out   *gob.Encoder
	in    *gob.Decoder
	stdin io.Closer
}

func connect(t *testing.T, points ...string) (*Worker, *fakeParent) {
	t.Helper()
	toR, toW := io.Pipe()
	fromR, fromW := io.Pipe()
	p := &fakeParent{t: t, out: gob.NewEncoder(toW), in: gob.NewDecoder(fromR), stdin: toW}
	go func() { _ = p.out.Encode(toWorker{Hello: &hello{Worker: 2, Start: 3, InFlight: 8, Points: points}}) }()
	w, err := Connect(toR, fromW)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = toW.Close()
		_ = fromR.Close()
		_ = w.Close()
	})
	return w, p
}

func (p *fakeParent) send(f toWorker) {
	p.t.Helper()
	if err := p.out.Encode(f); err != nil {
		p.t.Fatal(err)
	}
}

func (p *fakeParent) receive() toParent {
	p.t.Helper()
	var f toParent
	if err := p.in.Decode(&f); err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *fakeParent) receiveSettle() settle {
	p.t.Helper()
	f := p.receive()
	if f.Settle == nil {
		p.t.Fatalf("got %+v, want a settlement", f)
	}
	return *f.Settle
}

func (p *fakeParent) subscribe(ctx context.Context, w *Worker) <-chan *message.Message {
	p.t.Helper()
	var messages <-chan *message.Message
	done := make(chan error, 1)
	go func() {
		var err error
		messages, err = w.Subscribe(ctx, "numbers")
		done <- err
	}()
	if !p.receive().Ready {
		p.t.Fatal("the first subscription does not say that the worker is ready")
	}
	if err := <-done; err != nil {
		p.t.Fatal(err)
	}
	return messages
}

func TestWorkerHandsOverEverything(t *testing.T) {
	w, p := connect(t)
	if w.Index != 2 || w.Start != 3 {
		t.Errorf("worker %d, start %d", w.Index, w.Start)
	}
	messages := p.subscribe(t.Context(), w)
	sent := Message{
		Topic:       "numbers",
		UUID:        "not \xff UTF-8",
		Metadata:    map[string]string{"a\x00": "\xfe\n"},
		Payload:     []byte("\x00\xff\n"),
		Key:         []byte("key"),
		NativeID:    "native",
		Undecodable: "a riddle",
	}
	taken := time.Now()
	p.send(toWorker{Deliver: &deliver{ID: 1, Message: sent, Number: 17, Count: 2, Time: taken}})
	msg := <-messages
	if msg.UUID != sent.UUID || string(msg.Payload) != string(sent.Payload) ||
		!reflect.DeepEqual(map[string]string(msg.Metadata), sent.Metadata) {
		t.Errorf("got %+v", msg)
	}
	d, ok := brokers.DeliveryOf(msg)
	if !ok || d.Undecodable == nil || d.Undecodable.Error() != "a riddle" || !d.Time.Equal(taken) {
		t.Errorf("facts %+v", d)
	}
	d.Undecodable, d.Time = nil, time.Time{}
	if want := (brokers.Delivery{
		Topic: "numbers", NativeID: "native", Coordinates: "numbers/17", Key: []byte("key"), Count: 2, Suspect: true,
	}); fmt.Sprint(d) != fmt.Sprint(want) {
		t.Errorf("facts %+v, want %+v", d, want)
	}
	msg.Ack()
	if s := p.receiveSettle(); s != (settle{ID: 1, Ack: true}) {
		t.Errorf("settled with %+v", s)
	}
	<-msg.Context().Done() // ends with the delivery
}

func TestWorkerGivesBack(t *testing.T) {
	w, p := connect(t)
	messages := p.subscribe(t.Context(), w)
	p.send(toWorker{Deliver: &deliver{ID: 1, Message: Message{Topic: "numbers"}, Count: 1}})
	msg := <-messages
	brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Second, Failed: true})
	msg.Nack()
	if s := p.receiveSettle(); s != (settle{ID: 1, After: time.Second, Failed: true}) {
		t.Errorf("settled with %+v", s)
	}
}

// Closing gives back what no handler has begun, and waits for what one has.
func TestWorkerDrains(t *testing.T) {
	for _, how := range []string{"close", "cancel", "parent ends"} {
		t.Run(how, func(t *testing.T) {
			w, p := connect(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			messages := p.subscribe(ctx, w)
			for id := range uint64(3) {
				p.send(toWorker{Deliver: &deliver{ID: id + 1, Message: Message{Topic: "numbers"}, Count: 1}})
			}
			begun := <-messages
			closed := make(chan struct{})
			switch how {
			case "parent ends":
				_ = p.stdin.Close()
			case "cancel":
				cancel()
			}
			returned := map[uint64]bool{}
			go func() {
				defer close(closed)
				_ = w.Close()
			}()
			for len(returned) < 2 {
				s := p.receiveSettle()
				if s.Ack || s.Failed {
					t.Errorf("given back as %+v", s)
				}
				returned[s.ID] = true
			}
			if !returned[2] || !returned[3] {
				t.Errorf("given back: %v", returned)
			}
			select {
			case <-closed:
				t.Fatal("Close did not wait for the handler")
			case <-time.After(50 * time.Millisecond):
			}
			begun.Ack()
			if s := p.receiveSettle(); s != (settle{ID: 1, Ack: true}) {
				t.Errorf("settled with %+v", s)
			}
			<-closed
			if _, open := <-messages; open {
				t.Error("a message after the end")
			}
			again, err := w.Subscribe(t.Context(), "numbers")
			if how == "parent ends" {
				if _, open := <-again; open || err != nil {
					t.Errorf("Subscribe after the parent's end: %v, a message: %t", err, open)
				}
			} else if !errors.Is(err, brokers.ErrClosed) {
				t.Errorf("Subscribe after Close: %v", err)
			}
		})
	}
}

func TestWorkerAbandonsHandlersThatNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := connect(t)
		messages := p.subscribe(t.Context(), w)
		p.send(toWorker{Deliver: &deliver{ID: 1, Message: Message{Topic: "numbers"}, Count: 1}})
		<-messages
		began := time.Now()
		_ = w.Close()
		if took := time.Since(began); took != drainTimeout {
			t.Errorf("Close took %s, want %s", took, drainTimeout)
		}
	})
}

func TestTopicsAreApart(t *testing.T) {
	w, p := connect(t)
	numbers := p.subscribe(t.Context(), w)
	p.send(toWorker{Deliver: &deliver{ID: 1, Message: Message{Topic: "letters", UUID: "a"}, Count: 1}})
	p.send(toWorker{Deliver: &deliver{ID: 2, Message: Message{Topic: "numbers", UUID: "1"}, Count: 1}})
	number := <-numbers
	if number.UUID != "1" {
		t.Errorf("got %q", number.UUID)
	}
	number.Ack()
	p.receiveSettle()
	letters, err := w.Subscribe(t.Context(), "letters") // what came before it has waited
	if err != nil {
		t.Fatal(err)
	}
	msg := <-letters
	if msg.UUID != "a" {
		t.Errorf("got %q", msg.UUID)
	}
	msg.Ack()
	p.receiveSettle()
}

func TestAnnounce(t *testing.T) {
	var none *Worker
	none.Announce("nobody asks")

	w, p := connect(t, "here")
	w.Announce("elsewhere") // nobody asks
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		w.Announce("here")
	}()
	f := p.receive()
	if f.Announce == nil || f.Announce.Point != "here" {
		t.Fatalf("got %+v", f)
	}
	select {
	case <-arrived:
		t.Fatal("did not wait for the parent")
	case <-time.After(50 * time.Millisecond):
	}
	p.send(toWorker{Proceed: &proceed{ID: f.Announce.ID, Disarm: "here"}})
	<-arrived
	w.Announce("here") // nobody asks any more
}

func TestAnnounceWithoutParent(t *testing.T) {
	w, p := connect(t, "here")
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		w.Announce("here")
	}()
	p.receive()
	_ = p.stdin.Close()
	<-arrived
}

func TestConnectWithoutParent(t *testing.T) {
	r, w := io.Pipe()
	_ = w.Close()
	if _, err := Connect(r, io.Discard); err == nil {
		t.Error("connected to nobody")
	}
}
