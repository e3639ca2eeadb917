package sqs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestMissingQueue(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		b := newBroker(t, s, sqs.Config{})
		topic := s.QueueName(t, "")
		_, err := subscriber(t, b, brokers.SubscriberConfig{}).Subscribe(t.Context(), topic)
		if !errors.Is(err, sqs.ErrNoQueue) {
			t.Errorf("%v", err)
		}
		says(t, err, topic, "create_queues=true", s.Region())
		if err := publisher(t, b).Publish(topic, newMessages(1)...); !errors.Is(err, sqs.ErrNoQueue) {
			t.Errorf("%v", err)
		}
		_, err = sqs.New(t.Context(), sqs.Config{Region: s.Region(), Endpoint: s.Endpoint(), Queues: []string{topic}})
		if !errors.Is(err, sqs.ErrNoQueue) {
			t.Errorf("%v", err)
		}
	})
}

// TestMissingPermission is an error at Subscribe that names the action.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	var config sqs.Config
	l := tap(&config)
	b := newBroker(t, s, config)
	l.fail("GetQueueUrl", 403, "AccessDeniedException", 1)
	_, err := subscriber(t, b, brokers.SubscriberConfig{}).Subscribe(t.Context(), topic)
	if !errors.Is(err, sqs.ErrDenied) {
		t.Errorf("%v", err)
	}
	says(t, err, "sqs:GetQueueUrl", topic)
	// Without the attributes it does not know the redrive policy, and says so.
	l.fail("GetQueueAttributes", 403, "AccessDeniedException", -1)
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
	publish(t, b, topic, newMessages(1)...)
	msg, _ := receive(t, messages)
	msg.Ack()
	if b.Capabilities().DeliveryLimit.Known {
		t.Error("the delivery limit is known")
	}
	l.fail("SendMessageBatch", 403, "AccessDeniedException", 1)
	err = publisher(t, b).Publish(topic, newMessages(1)...)
	if !errors.Is(err, sqs.ErrDenied) {
		t.Errorf("%v", err)
	}
	says(t, err, "sqs:SendMessage")
}

// TestTroubleWhileRunning: whatever the service answers to requests that worked before,
// the subscriber tries until they work again, says so once, and loses nothing.
func TestTroubleWhileRunning(t *testing.T) {
	t.Parallel()
	for code, word := range map[string]string{
		"ExpiredTokenException":     "the credentials are expired",
		"InvalidSignatureException": "this machine's clock",
		"RequestThrottled":          "throttled",
		"AccessDeniedException":     "allow sqs:ReceiveMessage",
		"InternalError":             "InternalError",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s := testenv.SQS(t)
			topic := s.NewQueue(t, nil)
			config := sqs.Config{Consume: sqs.Consume{Visibility: 10 * time.Second}}
			l := tap(&config)
			b := newBroker(t, s, config)
			var log logs
			messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Logger: &log}), topic)
			publish(t, b, topic, newMessages(3)...)
			msg, _ := receive(t, messages)
			for _, action := range []string{"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
				l.fail(action, 400, code, -1)
			}
			msg.Ack()
			before := l.requests("ReceiveMessage")
			testenv.Eventually(t, "there are more tries", func() bool { return l.requests("ReceiveMessage") > before+3 })
			for _, action := range []string{"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
				l.heal(action)
			}
			for range 2 {
				msg, d := receive(t, messages)
				if d.Count != 1 {
					t.Errorf("%+v", d)
				}
				msg.Ack()
			}
			if n := log.count("Receiving fails"); n != 1 || log.count(word) == 0 || log.count("Receiving works again") != 1 {
				t.Errorf("logged %d times that receiving fails", n)
				log.show(t)
			}
		})
	}
}

// TestServerForgetsItsQueues: a subscriber that may make them goes on by itself.
func TestServerForgetsItsQueues(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.PrivateSQS(t)
	topic := s.QueueName(t, "")
	b := newBroker(t, s.SQSServer, sqs.Config{CreateQueues: true})
	var log logs
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Logger: &log, DrainTimeout: time.Second}), topic)
	publish(t, b, topic, newMessages(1)...)
	held, _ := receive(t, messages)
	if err := s.RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	held.Ack() // of a message that is no more
	sent := newMessages(1)[0]
	testenv.Eventually(t, "publishing works again", func() bool { return publisher(t, b).Publish(topic, sent) == nil })
	msg, _ := receive(t, messages)
	if msg.UUID != sent.UUID {
		t.Errorf("%q came", msg.UUID)
	}
	msg.Ack()
	if log.count("Receiving fails") != 1 {
		log.show(t)
	}
}

// TestBinaryUUID: an attribute of the wrong type, with which watermill-aws dies.
func TestBinaryUUID(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, nil)
		client := s.Client(t)
		queue, err := client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &topic})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.SendMessage(t.Context(), &awssqs.SendMessageInput{
			QueueUrl: queue.QueueUrl, MessageBody: aws.String("body"),
			MessageAttributes: map[string]types.MessageAttributeValue{
				"_watermill_message_uuid": {DataType: aws.String("Binary"), BinaryValue: []byte("id")},
				"number":                  {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
				"picture":                 {DataType: aws.String("Binary.png"), BinaryValue: []byte("\x89PNG")},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		b := newBroker(t, s, sqs.Config{})
		msg, d := receive(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), aws.ToString(queue.QueueUrl)))
		if msg.UUID != "id" || msg.Metadata.Get("number") != "7" || msg.Metadata.Get("picture") != "\x89PNG" || d.Undecodable != nil {
			t.Errorf("%q %q %+v", msg.UUID, msg.Metadata, d)
		}
		msg.Ack()
	})
}

// TestSubscriberThatCannotReceiveSaysSo: everything else works.
func TestSubscriberThatCannotReceiveSaysSo(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	config := sqs.Config{Consume: sqs.Consume{Wait: time.Second}}
	l := tap(&config)
	b := newBroker(t, s, config)
	sub := subscriber(t, b, brokers.SubscriberConfig{})
	subscribe(t, sub, topic)
	if err := sub.Receiving(); err != nil {
		t.Fatal(err)
	}
	l.fail("ReceiveMessage", 403, "AccessDeniedException", -1)
	testenv.Eventually(t, "the subscriber says that it gets nothing", func() bool { return sub.Receiving() != nil })
	if err := sub.Receiving(); !errors.Is(err, brokers.ErrUnavailable) || !errors.Is(err, sqs.ErrDenied) {
		t.Errorf("the error is %v", err)
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("the queue answers: %v", err)
	}
	l.heal("ReceiveMessage")
	testenv.Eventually(t, "the subscriber receives again", func() bool { return sub.Receiving() == nil })
}
