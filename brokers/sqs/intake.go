package sqs

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

// intake receives messages into free slots.
type intake struct {
	s       *subscription
	pollers int
	turn    chan struct{} // held by the poller that collects slots
	slots   chan struct{} // free slots
	calls   chan struct{} // calls for one more poller
	trouble *outage.Outage
}

func (in *intake) init(s *subscription) {
	in.s = s
	inFlight := s.subscriber.config.InFlight
	in.pollers = cmp.Or(s.subscriber.broker.config.Consume.Pollers, (inFlight+batchSize-1)/batchSize)
	in.turn = make(chan struct{}, 1)
	in.slots = make(chan struct{}, inFlight)
	in.release(inFlight)
	in.calls = make(chan struct{})
	in.trouble = outage.New(s.Logger(), "Receiving")
}

// release frees slots, and reports whether all are free now.
func (in *intake) release(n int) bool {
	for range n {
		in.slots <- struct{}{}
	}
	return len(in.slots) == cap(in.slots)
}

// run polls until the subscription's intake ends and running receives have returned.
func (in *intake) run() {
	var helping sync.WaitGroup
	defer helping.Wait()
	for range in.pollers - 1 {
		helping.Go(in.help)
	}
	for in.s.Context().Err() == nil {
		in.poll()
	}
}

// help polls under load. An empty queue costs only the requests of one poller.
func (in *intake) help() {
	for {
		select {
		case <-in.calls:
			for in.poll() {
			}
		case <-in.s.Context().Done():
			return
		}
	}
}

// poll receives once, and reports whether every slot was filled.
func (in *intake) poll() (plenty bool) {
	s := in.s
	unsent := 10 * cap(in.slots)
	s.settling.deletes.ease(s.Context(), unsent)
	s.settling.returns.ease(s.Context(), unsent)
	n := in.gather()
	if n == 0 {
		return false
	}
	q := s.queue.Load()
	items, err := in.receive(q, n)
	if err != nil {
		in.release(n)
		in.recover(q, err)
		return false
	}
	in.trouble.Over()
	if rest := n - len(items); rest > 0 {
		in.release(rest)
	}
	s.admit(items)
	if plenty = len(items) == n; plenty {
		select {
		case in.calls <- struct{}{}:
		default: // all pollers are busy
		}
	}
	return plenty
}

// gather takes free slots for one receive: ten if possible, or those that are free after linger. It
// returns 0 when the subscription ends: a later receive would spend deliveries on messages that
// nobody handles.
func (in *intake) gather() (n int) {
	defer func() {
		if in.s.Context().Err() != nil { // the end may have come together with a slot
			in.release(n)
			n = 0
		}
	}()
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-in.s.Context().Done():
		return 0
	}
	select {
	case <-in.slots:
		n = 1
	case <-in.s.Context().Done():
		return 0
	}
	timer := time.NewTimer(in.s.subscriber.broker.config.Consume.Linger)
	defer timer.Stop()
	for want := min(batchSize, cap(in.slots)); n < want; n++ {
		select {
		case <-in.slots:
		case <-timer.C:
			return n
		case <-in.s.Context().Done():
			return n
		}
	}
	return n
}

// receiveGrace is how much longer than its wait a receive may take.
const receiveGrace = 15 * time.Second

// receive asks for up to n messages. It is never canceled: messages in an unread answer would stay
// hidden for the visibility timeout.
func (in *intake) receive(q *queue, n int) ([]*item, error) {
	s := in.s
	wait := s.subscriber.broker.config.Consume.Wait
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), wait+receiveGrace)
	defer cancel()
	answer, err := s.subscriber.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:              &q.url,
		MaxNumberOfMessages:   int32(n), //nolint:gosec // at most ten
		WaitTimeSeconds:       seconds(wait),
		VisibilityTimeout:     seconds(s.visibility),
		MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameSentTimestamp,
			types.MessageSystemAttributeNameMessageGroupId, types.MessageSystemAttributeNameMessageDeduplicationId,
		},
	}, once)
	if err != nil {
		return nil, err
	}
	received := time.Now()
	items := make([]*item, len(answer.Messages))
	for i, m := range answer.Messages {
		items[i] = newItem(q, m, received, s.visibility)
	}
	return items, nil
}

// seconds converts a duration to SQS's unit.
func seconds(d time.Duration) int32 {
	return int32(min(d, longestVisibility) / time.Second) //nolint:gosec // at most 12 hours
}

// recover waits after a failed receive, and looks up the queue again if it is gone.
func (in *intake) recover(q *queue, err error) {
	s, b := in.s, in.s.subscriber.broker
	refresh(b.aws.Credentials, err)
	after := in.trouble.Failed(explain("sqs:ReceiveMessage", err))
	if !pause.Sleep(s.Context(), after) || !isMissing(err) || s.queue.Load() != q {
		return
	}
	b.forget(q)
	ctx, cancel := context.WithTimeout(s.Context(), b.config.ConnectTimeout)
	defer cancel()
	if found, err := b.source(ctx, s.subscriber.client, s.topic, s.subscriber.config.Group); err == nil {
		s.queue.CompareAndSwap(q, found)
	}
}

// place is the queue's name in coordinates.
func (q *queue) place() string {
	if isURL(q.name) {
		return q.name[strings.LastIndexByte(q.name, '/')+1:]
	}
	if arn, ok := parseARN(q.name); ok {
		return arn.name
	}
	return q.name
}
