package fleet

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// drainTimeout bounds how long a closing worker waits for its handlers.
const drainTimeout = 30 * time.Second

// Worker is the worker's end: a Watermill subscriber behind the brokers contract.
// The context of each message carries a brokers.Delivery. It is safe for concurrent
// use.
type Worker struct {
	Index int // which worker of the fleet, from 0
	Start int // which process of this worker, from 1

	inFlight int
	frames   *gob.Decoder
	ended    chan struct{} // closed when the parent says nothing more

	sending sync.Mutex
	out     *gob.Encoder

	mu        sync.Mutex
	queues    map[string]chan deliver // by topic
	ready     bool
	closed    bool
	closing   chan struct{}
	running   sync.WaitGroup // subscriptions
	points    []string
	announced uint64
	waiting   map[uint64]chan struct{} // announcements
}

var _ message.Subscriber = (*Worker)(nil)

// ConnectStdio connects a worker process to its parent. From then on, what the
// program prints to os.Stdout goes to os.Stderr, away from the frames.
func ConnectStdio() (*Worker, error) {
	out := os.Stdout
	os.Stdout = os.Stderr
	return Connect(os.Stdin, out)
}

// Connect connects a worker to the parent at the other ends of in and out. The
// worker ends when in does, and reads it until then.
func Connect(in io.Reader, out io.Writer) (*Worker, error) {
	frames := gob.NewDecoder(bufio.NewReader(in))
	var first toWorker
	if err := frames.Decode(&first); err != nil {
		return nil, fmt.Errorf("fleet: no parent: %w", err)
	}
	if first.Hello == nil {
		return nil, errors.New("fleet: no parent: the first frame is no greeting")
	}
	w := &Worker{
		Index:    first.Hello.Worker,
		Start:    first.Hello.Start,
		inFlight: first.Hello.InFlight,
		frames:   frames,
		ended:    make(chan struct{}),
		out:      gob.NewEncoder(out),
		queues:   make(map[string]chan deliver),
		closing:  make(chan struct{}),
		points:   first.Hello.Points,
		waiting:  make(map[uint64]chan struct{}),
	}
	go w.receive()
	return w, nil
}

// receive hands on frames until the parent closes its end or dies.
func (w *Worker) receive() {
	defer w.shut()
	defer close(w.ended)
	for {
		var f toWorker
		if err := w.frames.Decode(&f); err != nil {
			return
		}
		switch {
		case f.Deliver != nil:
			queue := w.queue(f.Deliver.Message.Topic)
			queue <- *f.Deliver // has room for all that may be in flight
			select {
			case <-w.closing:
				w.giveBack(queue)
			default:
			}
		case f.Proceed != nil:
			w.proceed(*f.Proceed)
		}
	}
}

// queue holds the deliveries of a topic that no subscription has taken yet.
func (w *Worker) queue(topic string) chan deliver {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue, ok := w.queues[topic]
	if !ok {
		queue = make(chan deliver, w.inFlight)
		w.queues[topic] = queue
	}
	return queue
}

// send tells the parent, or shuts the worker down if there is none any more.
func (w *Worker) send(f toParent) {
	w.sending.Lock()
	err := w.out.Encode(f)
	w.sending.Unlock()
	if err != nil {
		w.shut()
	}
}

// Subscribe returns the deliveries of a topic. Their contexts derive from ctx and
// end when they are settled. The channel is closed when ctx ends, the worker is
// closed or the parent is gone, and all deliveries taken from it are settled, after
// 30 seconds at most. The error is brokers.ErrClosed after Close.
func (w *Worker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		select {
		case <-w.ended: // a process that came up too late
			nothing := make(chan *message.Message)
			close(nothing)
			return nothing, nil
		default:
			return nil, fmt.Errorf("fleet: %w", brokers.ErrClosed)
		}
	}
	first := !w.ready
	w.ready = true
	w.running.Add(1)
	w.mu.Unlock()

	if first {
		w.send(toParent{Ready: true})
	}
	s := &subscription{Worker: w, out: make(chan *message.Message), abandon: make(chan struct{})}
	go s.run(ctx, w.queue(topic))
	return s.out, nil
}

// Close stops the intake, gives back what no handler has begun and waits until the
// rest is settled, for 30 seconds at most. It may be called many times.
func (w *Worker) Close() error {
	w.shut()
	w.running.Wait()
	return nil
}

// shut begins to close.
func (w *Worker) shut() {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	queues := make([]chan deliver, 0, len(w.queues))
	for _, queue := range w.queues {
		queues = append(queues, queue)
	}
	w.mu.Unlock()
	if !first {
		return
	}
	close(w.closing)
	for _, queue := range queues {
		w.giveBack(queue)
	}
}

func (w *Worker) giveBack(queue chan deliver) {
	for {
		select {
		case d := <-queue:
			w.send(toParent{Settle: &settle{ID: d.ID}})
		default:
			return
		}
	}
}

// Announce tells the parent that the process is at a named point, and blocks until
// the parent lets it go on, or kills it. It returns at once if the parent has no
// fault in store for the point, or is gone, or w is nil.
func (w *Worker) Announce(point string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	if !slices.Contains(w.points, point) {
		w.mu.Unlock()
		return
	}
	w.announced++
	id := w.announced
	answer := make(chan struct{})
	w.waiting[id] = answer
	w.mu.Unlock()

	w.send(toParent{Announce: &announce{ID: id, Point: point}})
	select {
	case <-answer:
	case <-w.ended:
	}
}

func (w *Worker) proceed(p proceed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Disarm != "" {
		w.points = slices.DeleteFunc(w.points, func(point string) bool { return point == p.Disarm })
	}
	if answer := w.waiting[p.ID]; answer != nil {
		delete(w.waiting, p.ID)
		close(answer)
	}
}
