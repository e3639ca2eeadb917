package brokertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// How many messages are published before and after a restart, and how many right before it, so that
// the server ends while they are acked.
const around, amid = 20, 200

// checkRestart ends the server while a handler runs. Every message is delivered, whether it was
// published before or after, by the same publisher, to a subscriber that was there before. Only
// messages that were in flight come again, once: those that were handed out and not acked, or acked
// so late that the server had not stored the ack, for which Ack does not wait.
func checkRestart(e *env) error {
	if e.OpenRestartable == nil {
		e.notCheckedf("a restart of the server: the harness has no OpenRestartable")
		return nil
	}
	broker, restart := e.OpenRestartable(e.t)
	e.use(broker)
	r := &restarting{env: e, topic: e.topic(), group: newGroup(), restart: restart, calls: 1}
	r.early, r.inFlight, r.late = newMessages(around), newMessages(amid), newMessages(around)
	var err error
	if r.publisher, err = e.publisher(); err != nil {
		return err
	}
	if err := r.settleEarly(); err != nil {
		return fmt.Errorf("before the restart: %w", err)
	}
	if err := r.amidHandler(); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	if err := r.rest(); err != nil {
		return fmt.Errorf("after the restart everything was acked: %w", err)
	}
	return nil
}

// restarting is the course of one restart.
type restarting struct {
	*env

	topic, group string
	restart      func()
	publisher    message.Publisher

	early    []*message.Message // acked before, and the server has shown that it knows
	inFlight []*message.Message // handed out since, acked or not
	late     []*message.Message // published afterwards
	calls    int                // calls of Publish for these; one that fails may have published

	crowd  *crowd         // handles all messages but the early ones
	before map[string]int // how often it got each message until the restart was over
}

func (r *restarting) subscribe() (*subscription, error) {
	return r.env.subscribe(brokers.SubscriberConfig{Group: r.group, InFlight: severalInFlight, DrainTimeout: r.Within}, r.topic)
}

// settleEarly acks messages for good. Close has waited for the last ack, the next consumer gets
// nothing, and the server has had time to store that.
func (r *restarting) settleEarly() error {
	s, err := r.subscribe()
	if err != nil {
		return err
	}
	if err := r.soon("publishing", func() error { return r.publisher.Publish(r.topic, r.early...) }); err != nil {
		return err
	}
	c := newCrowd(func(*message.Message) {})
	c.consume(s)
	if err := c.done(r.early, r.Within); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	if s, err = r.subscribe(); err != nil {
		return err
	}
	if err := s.nothing(); err != nil {
		return fmt.Errorf("everything was acked: %w", err)
	}
	<-time.After(r.KeepsAcks)
	return s.close()
}

// amidHandler restarts the server while one message is held and others are acked.
func (r *restarting) amidHandler() error {
	s, err := r.subscribe()
	if err != nil {
		return err
	}
	if err := r.soon("publishing", func() error { return r.publisher.Publish(r.topic, r.inFlight...) }); err != nil {
		return err
	}
	release := make(chan struct{})
	r.crowd = newCrowd(func(*message.Message) { <-release })
	r.crowd.consume(s)
	if err := r.soon("the first message", func() error { <-r.crowd.begun; return nil }); err != nil {
		close(release)
		return err
	}
	if !r.Serial { // otherwise the held one holds up the rest
		if err := r.crowd.some(around, r.Within); err != nil {
			close(release)
			return err
		}
	}
	r.restart()
	r.before = r.crowd.deliveries()
	close(release)
	if err := r.publishLate(); err != nil {
		return err
	}
	within := 3 * r.Within // reconnecting takes pauses
	if err := r.crowd.done(slices.Concat(r.inFlight, r.late), within); err != nil {
		return err
	}
	return s.close()
}

// publishLate publishes again what may not have been accepted, as a program must.
func (r *restarting) publishLate() error {
	deadline := time.Now().Add(3 * r.Within)
	for {
		err := r.publisher.Publish(r.topic, r.late...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		r.calls++
		<-time.After(r.Quiet)
	}
}

// rest acks what comes late, and judges what came since the restart. The held message was acked
// after the restart, maybe on a dead connection. Then the server delivers it again, and RabbitMQ
// from 4.3 on may do so after everything else.
func (r *restarting) rest() error {
	s, err := r.subscribe()
	if err != nil {
		return err
	}
	r.crowd.consume(s)
	<-time.After(r.Quiet)
	if err := s.close(); err != nil {
		return err
	}
	since := r.crowd.deliveries()
	for uuid, before := range r.before {
		since[uuid] -= before
	}
	again := 0
	for _, msg := range r.inFlight {
		if r.before[msg.UUID] > 0 && since[msg.UUID] > 0 {
			again++
		}
	}
	r.t.Logf("brokertest: of %d messages in flight at the restart %d came again", len(r.before), again)
	if r.KeptFreesSlot && again > severalInFlight {
		err = fmt.Errorf("%d messages that were in flight when the server ended came again, the limit is %d", again, severalInFlight)
	}
	return errors.Join(err,
		atMost(0, since, r.early, "acked and known to the server before it ended"),
		atMost(1, since, r.inFlight, "in flight when the server ended"),
		atMost(r.calls, since, r.late, fmt.Sprintf("published after the restart by %d calls", r.calls)),
	)
}

// atMost expects that each of the messages came at most that many times.
func atMost(most int, times map[string]int, messages []*message.Message, what string) error {
	for _, msg := range messages {
		if n := times[msg.UUID]; n > most {
			return fmt.Errorf("message %q (payload %q), %s, came %d times", msg.UUID, msg.Payload, what, n)
		}
	}
	return nil
}
