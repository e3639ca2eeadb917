package sqs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

const snsPrefix = "arn:aws:sns:us-east-1:123456789012"

// TestFanOut: each group has a queue of its own behind the topic, which is made once.
func TestFanOut(t *testing.T) {
	t.Parallel()
	s := testenv.Moto(t)
	for _, suffix := range []string{"", ".fifo"} {
		b := newBroker(t, s, sqs.Config{SNS: snsPrefix, CreateQueues: true})
		topic := "topic-" + newID()[:8] + suffix
		first := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: "first"}), topic)
		again := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: "first"}), topic)
		second := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: "second/handler"}), topic)
		sent := newMessages(1)[0]
		sent.Metadata.Set("field", "value")
		publish(t, b, snsPrefix+":"+topic, sent)
		msg, d := receive(t, second)
		if !msg.Equals(sent) || d.Topic != topic {
			t.Errorf("%q %q %+v", msg.UUID, msg.Metadata, d)
		}
		if suffix != "" && d.NativeID != sent.UUID {
			t.Errorf("%+v", d)
		}
		msg.Ack()
		select {
		case msg := <-first:
			msg.Ack()
		case msg := <-again:
			msg.Ack()
		}
		nothing(t, first, 200*time.Millisecond)
	}
}

// TestWrappedDelivery: SNS without raw delivery puts an envelope around the message.
func TestWrappedDelivery(t *testing.T) {
	t.Parallel()
	s := testenv.Moto(t)
	b := newBroker(t, s, sqs.Config{})
	queue := s.NewQueue(t, nil)
	client := sns.NewFromConfig(s.Config(t))
	topic, err := client.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("topic-" + newID())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: aws.String(arnOf(t, s, queue)),
	}); err != nil {
		t.Fatal(err)
	}
	sent := newMessages(1)[0]
	sent.Metadata.Set("field", "value")
	sent.Payload = []byte(`{"a": "☃"}`)
	publish(t, b, aws.ToString(topic.TopicArn), sent)
	msg, d := receive(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), queue))
	if !msg.Equals(sent) || d.Undecodable != nil || !strings.HasPrefix(d.Coordinates, queue+"/") {
		t.Errorf("%q %q %s %+v", msg.UUID, msg.Metadata, msg.Payload, d)
	}
	msg.Ack()
}

func arnOf(t *testing.T, s *server, queue string) string {
	t.Helper()
	client := s.Client(t)
	found, err := client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: found.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Attributes["QueueArn"]
}

// TestGroupsOfOneQueue would share its messages without a word.
func TestGroupsOfOneQueue(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	b := newBroker(t, s, sqs.Config{})
	first := subscriber(t, b, brokers.SubscriberConfig{Group: "first"})
	subscribe(t, first, topic)
	_, err := subscriber(t, b, brokers.SubscriberConfig{Group: "second"}).Subscribe(t.Context(), topic)
	says(t, err, "first", "second", "{topic}-{group}")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: "second"}), topic)
}
