package sqs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

// picky stands before a server, and takes out of each batch that is sent what it refuses.
type picky struct {
	mu      sync.Mutex
	refuses func(body string) (code string, itsFault, refused bool)
	batches []int           // how many entries each had
	changes []time.Duration // of visibility
}

func (p *picky) config() (config sqs.Config) {
	config.SQSOptions = append(config.SQSOptions, func(o *awssqs.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("picky", p.handle), middleware.Before)
		})
	})
	return config
}

func (p *picky) handle(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	var failed []types.BatchResultErrorEntry
	p.mu.Lock()
	switch input := in.Parameters.(type) {
	case *awssqs.SendMessageBatchInput:
		p.batches = append(p.batches, len(input.Entries))
		var rest []types.SendMessageBatchRequestEntry
		for _, entry := range input.Entries {
			if code, itsFault, refused := p.refuses(aws.ToString(entry.MessageBody)); refused {
				failed = append(failed, types.BatchResultErrorEntry{Id: entry.Id, Code: &code, SenderFault: itsFault, Message: aws.String("said by the test")})
			} else {
				rest = append(rest, entry)
			}
		}
		in.Parameters = &awssqs.SendMessageBatchInput{QueueUrl: input.QueueUrl, Entries: rest}
	case *awssqs.ChangeMessageVisibilityBatchInput:
		for _, entry := range input.Entries {
			p.changes = append(p.changes, time.Duration(entry.VisibilityTimeout)*time.Second)
		}
	}
	p.mu.Unlock()
	out, metadata, err := next.HandleInitialize(ctx, in)
	if answer, ok := out.Result.(*awssqs.SendMessageBatchOutput); ok && err == nil {
		answer.Failed = append(answer.Failed, failed...)
	}
	return out, metadata, err
}

// TestPartOfABatchIsRefused: what may be taken later is sent again, alone; what may not is
// named, and the others are taken.
func TestPartOfABatchIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fifo    bool
		code    string
		fault   bool // the sender's
		once    bool
		fails   bool
		batches []int
	}{
		"for now":            {code: "InternalError", once: true, batches: []int{10, 1}},
		"throttled":          {code: "RequestThrottled", fault: true, once: true, batches: []int{10, 1}},
		"for ever":           {code: "InvalidMessageContents", fault: true, fails: true, batches: []int{10}},
		"for now, FIFO":      {fifo: true, code: "InternalError", once: true, fails: true, batches: []int{10}}, // it would come after those behind it
		"for ever, in order": {fifo: true, code: "InvalidMessageContents", fault: true, fails: true, batches: []int{10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.SQS(t)
			var attributes map[string]string
			if c.fifo {
				attributes = map[string]string{"FifoQueue": "true"}
			}
			topic := s.NewQueue(t, attributes)
			sent, refused := newMessages(10), 0
			p := &picky{refuses: func(body string) (string, bool, bool) {
				if body != string(sent[3].Payload) || c.once && refused > 0 {
					return "", false, false
				}
				refused++
				return c.code, c.fault, true
			}}
			b := newBroker(t, s, p.config())
			err := publisher(t, b).Publish(topic, sent...)
			if (err != nil) != c.fails {
				t.Errorf("%v", err)
			}
			if c.fails {
				says(t, err, "message 4 of 10", sent[3].UUID, c.code)
			}
			if fmt.Sprint(p.batches) != fmt.Sprint(c.batches) {
				t.Errorf("batches of %d messages were sent, want %d", p.batches, c.batches)
			}
			messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 10}), topic)
			came := map[string]int{}
			for range len(sent) - map[bool]int{true: 1}[c.fails] {
				msg, _ := receive(t, messages)
				came[msg.UUID]++
				msg.Ack()
			}
			for i, msg := range sent {
				if want := map[bool]int{true: 0, false: 1}[c.fails && i == 3]; came[msg.UUID] != want {
					t.Errorf("message %d came %d times", i+1, came[msg.UUID])
				}
			}
		})
	}
}

// TestLongestDelay: a nack with a delay that SQS does not allow gets the longest that it
// does, which moto checks.
func TestLongestDelay(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, nil)
		var p picky
		p.refuses = func(string) (string, bool, bool) { return "", false, false }
		b := newBroker(t, s, p.config())
		var log logs
		messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Logger: &log}), topic)
		publish(t, b, topic, newMessages(1)...)
		msg, _ := receive(t, messages)
		brokers.SetGiveBack(msg, brokers.GiveBack{After: 100 * time.Hour})
		msg.Nack()
		last := func() (d time.Duration) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := len(p.changes); n > 0 {
				d = p.changes[n-1]
			}
			return d
		}
		testenv.Eventually(t, "it is given back", func() bool { return last() > 11*time.Hour })
		if d := last(); d >= 12*time.Hour || d < 12*time.Hour-time.Minute {
			t.Errorf("it is hidden for %s", d)
		}
		nothing(t, messages, 300*time.Millisecond)
		if n := log.count("fails"); n > 0 {
			log.show(t)
			t.Error("a request failed")
		}
	})
}
