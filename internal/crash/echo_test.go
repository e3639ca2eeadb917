package crash

import (
	"context"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// echoing is a consumer's subscription to the fleet, and to what its own handler publishes
// by a pub/sub that keeps contexts: the attempt, and all else that is the attempt's,
// travels to a message that it has nothing to do with. What is published so dies with its
// process. Once acked it must not be lost.
type echoing struct {
	group

	recorder *recorder
	echoes   chan *message.Message
	closing  chan struct{}
	close    func()
}

func newEchoing(g group, r *recorder) *echoing {
	const enough = 1000
	s := &echoing{group: g, recorder: r, echoes: make(chan *message.Message, enough), closing: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closing) })
	return s
}

// Subscribe hands out both.
func (s *echoing) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	own, err := s.group.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	var open sync.WaitGroup
	open.Go(func() {
		defer s.close()
		for msg := range own {
			out <- msg
		}
	})
	open.Go(func() {
		for {
			select {
			case echo := <-s.echoes:
				go s.await(echo)
				out <- echo
			case <-s.closing:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	go func() {
		open.Wait()
		close(out)
	}()
	return out, nil
}

// Close ends both.
func (s *echoing) Close() error {
	s.close()
	return s.group.Close()
}

// await writes down that an echo was acked. One that was not comes again.
func (s *echoing) await(echo *message.Message) {
	select {
	case <-echo.Acked():
		s.recorder.say(s.storyOf(echo), saidEchoAcked, nil)
	case <-echo.Nacked():
		pause.Sleep(context.Background(), openAgain)
		s.echoes <- echo.CopyWithContext()
	}
}

func (s *echoing) storyOf(msg *message.Message) context.Context {
	return context.WithValue(context.Background(), storyKey{}, story{s.consumer, msg.UUID, string(msg.Payload), false, nil})
}

// echo publishes a message in the middle of the handler of another one, with its context.
func (s *echoing) echo(msg *message.Message, o order) {
	echo := message.NewMessage(o.ID, []byte(o.Payload))
	echo.SetContext(context.WithoutCancel(msg.Context())) // or it would be given back for ever
	s.recorder.say(s.storyOf(echo), saidEchoed, nil)
	s.echoes <- echo
}

// spawned is the order that the handler of another one publishes.
func spawned(id string) order {
	number, _, _ := strings.Cut(id, "-")
	id = number + "s-" + string(echoed)
	return order{ID: id, Payload: "order " + id}
}

// echoes is I13 for what travels in contexts: a message that a handler publishes is a
// delivery of its own. It returns the keys of those that nobody else has published. Nobody
// publishes again what was acked and lost.
func (a *audit) echoes(l lost, history []event, published map[key]bool) map[key]bool {
	spawned := make(map[key]bool)
	for _, e := range history {
		k := key{e.Consumer, e.ID}
		switch e.What {
		case saidEchoed:
			spawned[k] = spawned[k] || !published[k]
		case saidEchoAcked:
			row, found := a.inbox[k]
			if l.in(e.At) {
				continue
			}
			if kept := found && row.status != stores.StatusProcessing && row.of(e.Payload); !kept {
				a.reportf("I13", k, "it was published in a handler with its context, and acked, and is neither completed nor kept")
			}
		}
	}
	for k := range spawned {
		if published[k] {
			delete(spawned, k)
			continue
		}
		a.effectOnce(k)
	}
	return spawned
}
